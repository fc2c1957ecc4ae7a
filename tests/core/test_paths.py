"""Paths as users give them: expanded once, and refused if the system cannot look them up."""

from __future__ import annotations

from pathlib import Path

import pytest

from opera.core.errors import SettingError
from opera.core.paths import expand_user, user_path, without_parents


def test_a_tilde_is_expanded_and_names_that_are_no_paths_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert user_path("~/run", "--out") == Path("/home/ada/run")
    for name in ("python:json", "org/model", "https://example.org//x", "a~b", "./~"):
        assert expand_user(name, "data") == name


@pytest.mark.parametrize("value", ["", "a\0b", "caf\udce9", "~nobody-of-this-name/x", "x" * 300])
def test_what_no_path_may_be_is_refused(value: str) -> None:
    with pytest.raises(SettingError, match=r"^--out"):
        user_path(value, "--out")


def test_a_folder_above_is_that_of_a_links_target(tmp_path: Path) -> None:
    (tmp_path / "far" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/target")
    assert without_parents(tmp_path / "link" / ".." / "run") == tmp_path.resolve() / "far" / "run"
