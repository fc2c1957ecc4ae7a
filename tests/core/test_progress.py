"""Progress where standard error is no terminal: lines in the log, not too often."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

import opera
from opera.core import progress as module
from opera.core.progress import Job, counted, duration, progress
from small_runs import SMALL


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that progress sees, a list of one."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="opera")
    return caplog


def test_a_line_says_what_is_done_and_what_is_left(clock: list[float], lines: pytest.LogCaptureFixture) -> None:
    with progress("training", 500, "steps", initial=20) as bar:
        bar.show({"loss": "0.430"})
        clock[0] += 30
        bar.update(60)
    assert lines.messages == ["training: 80 of 500 steps, loss 0.430, 4 min left"]


def test_lines_come_at_most_every_few_seconds(clock: list[float], lines: pytest.LogCaptureFixture) -> None:
    for part in range(2):  # bars that follow each other share the half minutes
        for _ in counted(range(50), f"searching {part}", 50, "parts"):
            clock[0] += 1
    said = [line.split(",")[0] for line in lines.messages]
    assert said == ["searching 0: 30 of 50 parts", "searching 1: 10 of 50 parts", "searching 1: 40 of 50 parts"]


def test_lines_of_a_job_say_what_is_left_of_all_its_phases(clock: list[float], lines: pytest.LogCaptureFixture) -> None:
    work = {"trial": {"steps": 40.0}, "choose": {"documents": 90.0}, "train": {"steps": 40.0}}
    job = Job(work, {"steps": 1.0, "documents": 2.0})
    assert job.seconds_left() == 40 + 180 + 40
    with job.phase("trial"), progress("training", 40, "steps", initial=10) as bar:
        clock[0] += 60  # 2 s per step, not 1
        bar.update(30)
    assert lines.messages == ["training: 40 of 40 steps, 4 min left in all"]
    assert job.seconds_left() == 180 + 80
    with job.phase("choose"):
        pass  # all of it was in the cache
    assert job.seconds_left() == 80
    assert Job(work).seconds_left() is None


def test_bytes_and_unknown_totals(clock: list[float], lines: pytest.LogCaptureFixture) -> None:
    for total, unit in ((40_000_000, "B"), (None, "documents")):
        with progress("reading", total, unit) as bar:
            clock[0] += 30
            bar.update(10_000_000)
    assert lines.messages == ["reading: 10.0 MB of 40.0 MB, 90 s left", "reading: 10,000,000 documents"]


def test_a_terminal_shows_a_bar_and_hidden_ones_nothing(
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    lines: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def count(hidden: bool) -> str:
        with progress("x", 2, "steps", hidden=hidden) as bar:
            clock[0] += 30
            bar.update(1)
            bar.refresh()
        return capsys.readouterr().err

    assert count(hidden=True) == ""
    assert lines.messages == []
    assert count(hidden=False) == ""
    assert lines.messages == ["x: 1 of 2 steps, 30 s left"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "x:  50%" in count(hidden=False)
    assert len(lines.messages) == 1


@pytest.mark.parametrize(("seconds", "text"), [(3.2, "3 s"), (140, "2 min"), (11_000, "3.1 h")])
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_run_reports_training_and_encoding(
    monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN", 0.0)
    opera.adapt(beir, model=static_model, out=tmp_path / "run", **{**SMALL, "max_steps": 4, "guard": False})
    assert any(line.startswith("training: 4 of 4 steps") for line in lines.messages)
    assert any(line.startswith("encoding documents: 120 of 120 documents") for line in lines.messages)
