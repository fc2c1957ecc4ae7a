"""Grids before they run: what is planned, shown and estimated."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import opera
from grids import finished_run, planned
from opera.config.recipe import make_recipe
from opera.core.errors import RunFolderError, SettingError
from opera.experiments.grid import progress as live
from opera.experiments.grid import status as status_module
from opera.experiments.grid.compare import prepared
from opera.experiments.grid.plan import check_grid_folder, claimed, parse_method, write_grid_file
from opera.experiments.grid.progress import plan_table, progress_line, shown
from opera.experiments.grid.run import last_words
from opera.experiments.grid.status import Rate, Running, Status, in_words
from opera.runs.folder import planned_cells


class TestPlan:
    @pytest.mark.parametrize(
        ("text", "name", "settings"),
        [
            ("dp", "dp", {}),
            ("sp:k=0.5", "sp", {"k": 0.5}),
            ("dp:levels=query:range=10:50", "dp", {"levels": "query", "range": "10:50"}),
            ("sp+cbs:cbs_pool=10", "sp+cbs", {"cbs_pool": 10}),
        ],
    )  # fmt: skip
    def test_methods_carry_settings(self, text: str, name: str, settings: dict[str, Any]) -> None:
        assert parse_method(text) == (name, settings)

    def test_seeds_come_outermost_and_each_cell_has_its_folder(self, tmp_path: Path) -> None:
        cells = planned(tmp_path, methods=["ft", "sp:k=0.5"], steps=[5, 10], shared={"lr": 0.1})
        places = [str(cell.place.relative_to(tmp_path)) for cell in cells]
        assert places[:3] == ["x/ft/steps5/seed0", "x/sp,k=0.5/steps5/seed0", "x/ft/steps10/seed0"]
        assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
        assert len(set(places)) == 8
        assert cells[1].values == {"learning_rate": 0.1, "k": 0.5, "method": "sp", "max_steps": 5, "seed": 0}
        assert cells[1].log == tmp_path / "x/sp,k=0.5/steps5/seed0.log"
        assert cells[1].title == "x, sp:k=0.5, 5 steps, seed 0"

    def test_a_methods_own_setting_goes_before_that_of_all(self, tmp_path: Path) -> None:
        for shared, own in (({"lr": 1}, "learning_rate"), ({"learning_rate": 1}, "lr")):
            (cell,) = planned(tmp_path, methods=[f"ft:{own}=2"], seeds=[0], shared=shared)
            assert make_recipe(cell.values).train.optimisation.learning_rate == 2

    def test_data_sets_of_one_name_and_odd_names_stay_inside_the_grid(self, tmp_path: Path) -> None:
        cells = planned(
            tmp_path,
            data=["a/x", "b/x", "b/x.jsonl", "python:json", "..", "/", "c/é [b] %s"],
            methods=["ft"],
            seeds=[0],
        )
        names = [cell.place.relative_to(tmp_path).parts[0] for cell in cells]
        assert names == ["x", "x-2", "x-3", "python-json", Path.cwd().parent.name, "-", "é [b] %s"]
        assert all(len(cell.place.relative_to(tmp_path).parts) == 4 for cell in cells)

    def test_every_mistake_is_told_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError) as caught:
            planned(tmp_path, methods=["dq", "sp:k=2", "sp", "sp:k=0.25"])
        for part in ("dq: unknown method 'dq'", "sp:k=2: k: must be", "sp and sp:k=0.25 are the same settings"):
            assert part in str(caught.value)

    def test_a_grid_of_another_model_or_settings_is_refused_once_something_ran(self, tmp_path: Path) -> None:
        out = tmp_path / "grid"
        write_grid_file(out, "one", {"lr": 0.1, "range": (1, 50)})
        check_grid_folder(out, "two", {})
        (cell, *_) = planned(out)
        finished_run(cell)
        check_grid_folder(out, "one", {"learning_rate": 0.1, "range": [1, 50]})
        check_grid_folder(out, "one", {"learning_rate": 0.1, "range": "1:50"})
        with pytest.raises(RunFolderError, match="holds a grid with model 'one', this call has 'two'"):
            check_grid_folder(out, "two", {"lr": 0.1, "range": (1, 50)})
        with pytest.raises(RunFolderError, match="holds a grid with settings"):
            check_grid_folder(out, "one", {})
        (out / "grid.json").write_text("[1]")
        with pytest.raises(RunFolderError, match="is not as opera wrote it"):
            check_grid_folder(out, "one", {})

    def test_one_process_at_a_time(self, tmp_path: Path) -> None:
        write_grid_file(tmp_path, "one", {})
        with claimed(tmp_path):
            told = f"process {os.getpid()} is running this grid"
            with pytest.raises(RunFolderError, match=told), claimed(tmp_path):
                pass
        with claimed(tmp_path):
            pass

    def test_the_cells_of_all_calls_are_kept(self, tmp_path: Path) -> None:
        for methods in (["ft", "dp"], ["dp", "sp"]):
            write_grid_file(tmp_path, "one", {}, planned(tmp_path, methods=methods, seeds=[0]))
        assert [path.parents[1].name for path in planned_cells(tmp_path)] == ["ft", "dp", "sp"]

    def test_finished_cells_of_other_data_are_refused(self, tmp_path: Path, beir: Path, static_model: Path) -> None:
        out = tmp_path / "grid"
        write_grid_file(out, str(static_model), {})
        (cell,) = planned(out, data=[str(beir)], methods=["ft"], seeds=[0])
        arguments = [str(beir)], ["ft"], [0], [10], out, str(static_model), {}, 1
        finished_run(cell, fingerprint=opera.load_data(beir).fingerprint)
        assert prepared(*arguments).done == {cell.place}
        about = json.loads((cell.place / "run.json").read_text())
        about["data"]["fingerprint"] = "other"
        (cell.place / "run.json").write_text(json.dumps(about))
        with pytest.raises(RunFolderError, match="is a run on other data than"):
            prepared(*arguments)


class Clock:
    """Stands in for the monotonic clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(status_module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class TestTimeLeft:
    def test_unknown_until_something_is_known(self, tmp_path: Path, clock: Clock) -> None:
        status = Status.of(planned(tmp_path))
        assert status.seconds_left() is None
        assert progress_line(status) == "0 of 4 cells done, time left not known yet"
        status.running[status.cells[0].place] = Running(clock.now)
        assert status.seconds_left() is None

    def test_from_rates_timed_beforehand(self, tmp_path: Path) -> None:
        status = Status.of(planned(tmp_path, steps=[10, 20]))
        status.timed["data/x"] = Rate(0.5, 3.0)
        assert status.seconds_left() == 4 * (5 + 3) + 4 * (10 + 3)
        status.jobs = 2
        assert status.seconds_left() == 42
        status.jobs = 100
        assert status.seconds_left() == 13, "the longest cell"
        status.jobs = 3
        assert status.seconds_left() == 34, "8 13 13, 8 8 13 and 13 8"
        status.once["data/x"] = 5.0
        status.jobs = 1
        assert status.seconds_left() == 84 + 5

    def test_finished_cells_most_alike_count_and_not_what_was_timed(self, tmp_path: Path) -> None:
        cells = planned(tmp_path, data=["data/x", "data/y"], methods=["ft", "dp", "rp"])
        ft, dp, *_ = cells
        finished_run(ft, step=0.5, around=3.0)
        finished_run(dp, step=1.0, around=3.0)
        status = Status.of(cells)
        status.timed["data/x"] = Rate(99, 99)
        assert status.done == {ft.place, dp.place}
        rates = {(cell.data, cell.label): status.rate(cell) for cell in status.waiting}
        assert rates["data/x", "ft"] == Rate(0.5, 3.0)
        assert rates["data/x", "dp"] == Rate(1.0, 3.0)
        assert rates["data/x", "rp"] == rates["data/y", "rp"] == Rate(0.75, 3.0)
        status.timed["data/y"] = Rate(2, 0)
        assert status.rate(cells[4]) == Rate(2, 0)

    def test_of_a_running_cell_by_its_own_steps(self, tmp_path: Path, clock: Clock) -> None:
        (cell,) = planned(tmp_path, methods=["ft"], seeds=[0], steps=[100])
        status = Status.of([cell])
        status.timed["data/x"] = Rate(99, 30.0)
        running = status.running[cell.place] = Running(clock.now)
        clock.now += 10
        running.saw(1)
        assert status.seconds_left() == pytest.approx(99 * 100 + 30 - 10, rel=0.02), "one step tells no rate"
        clock.now += 20
        running.saw(11)  # 2 s a step
        assert status.seconds_left() == pytest.approx(2 * 89 + 20), "10 of the 30 s beside training are over"
        clock.now += 5
        assert status.seconds_left() == pytest.approx(2 * 89 + 15), "it counts down between the news"
        clock.now += 2 * 89 - 5
        running.saw(100)
        assert status.seconds_left() == pytest.approx(20), "measuring after training"
        clock.now += 25
        assert status.seconds_left() == 0

    def test_of_a_resumed_cell_and_of_those_that_wait_for_it(self, tmp_path: Path, clock: Clock) -> None:
        cells = planned(tmp_path, methods=["ft"], seeds=[0, 1], steps=[100])
        status = Status.of(cells)
        running = status.running[cells[0].place] = Running(clock.now)
        clock.now += 4
        running.saw(51)
        clock.now += 10
        running.saw(71)  # half a second a step, and 4 s before
        assert status.seconds_left() == pytest.approx(29 * 0.5 + 100 * 0.5 + 4)
        assert progress_line(status) == "0 of 2 cells done, 1 running, about 68 s left"

    @pytest.mark.parametrize(
        ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (840, "14 min"), (12_000, "3 h 20 min")]
    )
    def test_in_words(self, seconds: float, words: str) -> None:
        assert in_words(seconds) == words


class TestShown:
    @pytest.fixture
    def status(self, tmp_path: Path, clock: Clock) -> Status:
        """Of each method: dp done, ft failed or running, the rest waits."""
        cells = planned(tmp_path, data=["data/[red]x"], methods=["ft", "dp", "rp"])
        for cell in cells:
            if cell.label == "dp":
                finished_run(cell, ndcg=0.5 + cell.seed / 10)
        status = Status.of(cells)
        failed, *_ = cells
        status.failed[failed.place] = "[bold]no memory"
        failed.log.parent.mkdir(parents=True, exist_ok=True)
        failed.log.write_text("before\nTraceback\nOutOfMemoryError")
        status.running[cells[3].place] = Running(clock.now, step=5)
        return status

    def screen(self, monkeypatch: pytest.MonkeyPatch, height: int, terminal: bool = True) -> io.StringIO:
        buffer = io.StringIO()
        monkeypatch.setattr(
            live,
            "Console",
            lambda **_: Console(file=buffer, force_terminal=terminal, width=100, height=height, highlight=False),
        )
        return buffer

    def test_a_table_on_a_terminal(self, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
        buffer = self.screen(monkeypatch, 40)
        with shown(status) as changed:
            changed(status, status.cells[0])
            changed(status, None)
        said = buffer.getvalue()
        assert "failed: [red]x, ft, 10 steps, seed 0: [bold]no memory" in said
        assert "OutOfMemoryError" in said
        last = said[said.rindex("nDCG@10 so far") :]
        for part in ("✗", "50%", "✓", "·", "0.550 ± 0.071", "2 of 6 cells done, 1 running, 1 failed, about"):
            assert part in last

    def test_rows_give_way_on_a_low_terminal(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cells = planned(tmp_path, steps=list(range(10, 20)))
        status = Status.of(cells)
        status.running[cells[-1].place] = Running(0.0, step=2)
        buffer = self.screen(monkeypatch, 12)
        with shown(status):
            pass
        assert "and 14 rows more" in buffer.getvalue()
        assert "11%" in buffer.getvalue(), "what runs is shown first"

    def test_lines_elsewhere(
        self, status: Status, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.screen(monkeypatch, 40, terminal=False)
        with shown(status) as changed:
            changed(status, status.cells[0])
            changed(status, status.cells[1])
            changed(status, None)
        failed, *words, done = capsys.readouterr().err.splitlines()
        assert failed == "failed: [red]x, ft, 10 steps, seed 0: [bold]no memory"
        assert words[0] == "before"
        assert words[-1] == f"  all it said: {status.cells[0].log}"
        assert done.startswith("done: [red]x, dp, 10 steps, seed 0: nDCG@10 0.5000; 2 of 6 cells done")

    def test_the_plan(self, status: Status) -> None:
        screen = Console(width=120, highlight=False)
        with screen.capture() as captured:
            screen.print(plan_table(status))
        rows = [line for line in captured.get().splitlines() if "[red]x" in line]
        cells = [[part.strip() for part in row.strip("│").split("│")] for row in rows]
        assert ["[red]x", "dp", "10", "0, 1", "0", "8 s", "0 s"] in cells
        assert ["[red]x", "rp", "10", "0, 1", "2", "8 s", "16 s"] in cells

    def test_last_words(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_bytes(b"a\nb\nc\n\xff\n\n")
        assert last_words(tmp_path / "log", 2) == "c\n\ufffd"
        assert last_words(tmp_path / "absent") == ""
