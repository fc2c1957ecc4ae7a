"""The state of a grid, and the time left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from grids import SITUATION, finish_cell, planned
from opera.config.automatic import resolve
from opera.config.training import TrainSettings
from opera.experiments.grid.progress import progress_line
from opera.experiments.grid.status import Rate, Status, format_duration


def test_unknown_until_something_is_known(tmp_path: Path, clock: SimpleNamespace) -> None:
    status = Status.scan(planned(tmp_path))
    assert status.seconds_left() is None
    assert progress_line(status) == "0 of 4 cells done, time left not known yet"
    status.running[status.cells[0].folder] = clock.now
    assert status.seconds_left() is None


def test_from_rates_timed_beforehand(tmp_path: Path) -> None:
    status = Status.scan(planned(tmp_path, steps=[10, 20]))
    status.timed["data/x"] = Rate(0.5, 3.0)
    assert status.seconds_left() == 4 * (5 + 3) + 4 * (10 + 3)
    status.jobs = 2
    assert status.seconds_left() == 42
    status.jobs = 100
    assert status.seconds_left() == 13, "the longest cell"
    status.jobs = 3
    assert status.seconds_left() == 34, "8 13 13, 8 8 13 and 13 8"
    status.encoding["data/x"] = 5.0
    status.jobs = 1
    assert status.seconds_left() == 84 + 5


def test_finished_cells_most_alike_count_and_not_what_was_timed(tmp_path: Path) -> None:
    cells = planned(tmp_path, data=["data/x", "data/y"], methods=["ft", "dp", "rp"])
    ft, dp, *_ = cells
    finish_cell(ft, per_step=0.5, overhead=3.0)
    finish_cell(dp, per_step=1.0, overhead=3.0)
    status = Status.scan(cells)
    status.timed["data/x"] = Rate(99, 99)
    assert status.done == {ft.folder, dp.folder}
    rates = {(cell.data, cell.label): status.rate(cell) for cell in status.waiting}
    assert rates["data/x", "ft"] == Rate(0.5, 3.0)
    assert rates["data/x", "dp"] == Rate(1.0, 3.0)
    assert rates["data/x", "rp"] == rates["data/y", "rp"] == Rate(0.75, 3.0)
    status.timed["data/y"] = Rate(2, 0)
    assert status.rate(cells[4]) == Rate(2, 0)


def test_automatic_steps_are_known_once_timed_or_finished(tmp_path: Path) -> None:
    cells = planned(tmp_path, methods=["ft", "dp:epochs=3:batch_size=100"], steps=None)
    ft, dp, *_ = cells
    status = Status.scan(cells)
    status.timed["data/x"] = Rate(0.5, 3.0)
    assert [status.steps(cell) for cell in (ft, dp)] == [None, None]
    assert status.seconds_left() is None
    finish_cell(dp)
    status.done.add(dp.folder)
    assert [status.steps(cell) for cell in cells] == [None, 30, None, 30]
    status.situations["data/x"] = SITUATION
    automatic = resolve(TrainSettings(), SITUATION).max_steps
    assert [status.steps(cell) for cell in cells] == [automatic, 30, automatic, 30]
    assert status.seconds_left() is not None


def test_of_running_cells_and_of_those_that_wait_for_them(tmp_path: Path, clock: SimpleNamespace) -> None:
    cells = planned(tmp_path, methods=["ft"], seeds=[0, 1, 2], steps=[100])
    status = Status.scan(cells, jobs=2)
    status.timed["data/x"] = Rate(0.5, 10.0)
    status.running = {cells[0].folder: clock.now, cells[1].folder: clock.now + 20}
    clock.now += 30
    assert status.seconds_left() == pytest.approx(30 + 60), "the third begins when the first has ended"
    assert progress_line(status) == "0 of 3 cells done, 2 running, about 2 min left"
    clock.now += 100
    assert status.seconds_left() == pytest.approx(60), "both are late"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (840, "14 min"), (12_000, "3 h 20 min")]
)
def test_format_duration(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
