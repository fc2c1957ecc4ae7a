"""``opera quickstart``: refusals and Ctrl-C; tests/training/test_quickstart.py runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Opera


def test_a_folder_of_the_users_own_is_spared(run_opera: Opera, tmp_path: Path) -> None:
    (tmp_path / "quickstart" / "data").mkdir(parents=True)
    for options in ([], ["--overwrite"]):
        done = run_opera("quickstart", *options)
        assert done.returncode == 2
        assert "was not written by a quickstart; pass another folder" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["quickstart", "data"]


def test_an_unknown_method_is_refused(run_opera: Opera, tmp_path: Path) -> None:
    done = run_opera("quickstart", "--method", "dq")
    assert done.returncode == 2
    assert "unknown method 'dq'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_prints_how_to_start_again(run_opera: Opera, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("opera.training.quickstart.load_python", interrupt)
    done = run_opera("quickstart")
    assert done.returncode == 130
    assert "interrupted; the same command with --overwrite starts again" in done.stderr
