"""Paths as users give them: expanded once, and refused where no path can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opera.core.errors import SettingError
from opera.core.paths import expand_user, kind_of_place, user_path, without_parents


def test_a_tilde_is_expanded_and_names_that_are_no_paths_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert user_path("~/run", "--out") == Path("/home/ada/run")
    assert user_path(Path("~"), "--out") == Path("/home/ada")
    for name in ("python:json", "org/model", "https://example.org//x", "a~b", "./~"):
        assert expand_user(name, "data") == name


@pytest.mark.parametrize("value", ["", " \t", "a\0b", "caf\udce9", "~nobody-of-this-name/x", "x" * 300, "circle/x"])
def test_what_no_path_may_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("circle").symlink_to("circle")
    with pytest.raises(SettingError, match=r"^--out"):
        user_path(value, "--out")


def test_a_folder_above_is_that_of_a_links_target(tmp_path: Path) -> None:
    (tmp_path / "far" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/target")
    assert without_parents(tmp_path / "link" / ".." / "run") == tmp_path.resolve() / "far" / "run"
    assert without_parents(Path("link/run")) == Path("link/run")


def test_what_is_at_a_path_is_said_in_words(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to("absent")
    found = {name: kind_of_place(tmp_path / name) for name in ("", "pipe", "file", "nowhere", "file/x")}
    assert found == {"": "a folder", "pipe": "a named pipe", "file": "a file", "nowhere": None, "file/x": None}
    assert kind_of_place(Path(os.devnull)) == "a device"
