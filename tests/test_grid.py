"""Grids: what is planned, told and estimated, and real cells in processes of their own that are killed and stopped."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import opera
from opera.cli import main
from opera.config import make_recipe
from opera.errors import RunFolderError, SettingError, TrainingError
from opera.files import make_once
from opera.grid import live, running
from opera.grid import status as status_module
from opera.grid.comparing import check_baseline, compared, prepared
from opera.grid.live import plan_table, progress_line, shown
from opera.grid.plan import Cell, check_grid_folder, parse_method, plan_grid, write_grid_file
from opera.grid.running import Worker, WorkerLostError, last_words, run_grid
from opera.grid.status import Rate, Running, Status, in_words
from opera.measures import DEFAULT_MEASURES
from opera.runs import Run, RunWriter

OPERA = [sys.executable, "-m", "opera"]
QUICK: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "learning_rate": 0.01,
    "temperature": 0.1,
    "negatives": "hard",
    "range": "1:50",
}
SETTINGS = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
FAILING = "sp:range=500:600"  # there are 120 documents, which only the cell itself finds out
TRACE = pa.schema([("step", pa.int64()), ("seconds", pa.float64())])


def weights(path: Path) -> str:
    return hashlib.sha256(next((path / "model").rglob("model.safetensors")).read_bytes()).hexdigest()


def finished_run(cell: Cell, step: float = 0.5, around: float = 3.0, ndcg: float = 0.5, fingerprint: str = "x") -> None:
    """Make up what a finished cell leaves."""
    cell.place.mkdir(parents=True)
    writer, flat = RunWriter(cell.place), make_recipe(cell.values).flat()
    writer.write_about(
        {
            "status": "finished",
            "identity": flat,
            "settings": flat,
            "data": {"source": cell.data, "fingerprint": fingerprint},
            "model": {"source": "model"},
            "seed": cell.seed,
            "training": {"steps": cell.steps},
            "seconds": {"load": around, "train": 1e9},
        }
    )
    writer.write_measures({when: dict.fromkeys(DEFAULT_MEASURES, ndcg) for when in ("before", "after")})
    values = ndcg + np.linspace(-0.1, 0.1, 5)
    writer.write_per_query({"query_id": list("abcde"), **{f"after {name}": values for name in DEFAULT_MEASURES}})
    writer.write_pairs({"query_id": ["q"], "times_drawn": [1], "injected": [False]})
    writer.write_trace([{"step": at, "seconds": step} for at in range(cell.steps)], TRACE)


def planned(out: Path, **changes: Any) -> list[Cell]:
    given: dict[str, Any] = {"data": ["data/x"], "methods": ["ft", "dp"], "seeds": [0, 1], "steps": [10], "shared": {}}
    given |= changes
    return plan_grid(given["data"], given["methods"], given["seeds"], given["steps"], out, given["shared"])


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
            assert make_recipe(cell.values).train.learning_rate == 2

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


SHAM = """
import json, os, signal, sys, time
from pathlib import Path

def say(**news):
    print(json.dumps(news), flush=True)

def save(number, frame):
    time.sleep(0.5)
    Path(job["out"]).mkdir()
    say(stopped=True)
    sys.exit()

for line in iter(sys.stdin.readline, ""):
    job = json.loads(line)
    what = job["values"]["seed"]
    if what == 5: signal.signal(signal.SIGTERM, save)
    say(step=1)
    if what == 1: os.kill(os.getpid(), signal.SIGKILL)
    if what == 2: say(stopped=True); sys.exit()
    if what == 3: sys.exit(5)
    if what == 4: say(failed="no luck"); continue
    if what == 5: time.sleep(600)
    say(done=True)
"""


@pytest.fixture
def sham_workers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Workers that load nothing and end as the seed says; those that were started."""
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(popen([sys.executable, "-c", SHAM], **options))
        return started[-1]

    monkeypatch.setattr(running.subprocess, "Popen", start)
    return started


class TestWorkers:
    def test_one_that_dies_takes_no_other_cell_along(
        self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path
    ) -> None:
        cells = planned(tmp_path, methods=["ft"], seeds=range(5))
        cells += planned(tmp_path, methods=["dp"], seeds=[0])
        (tmp_path / "x" / "dp").mkdir(parents=True)
        (tmp_path / "x" / "dp" / "steps10").write_text("a file where the cells' folder goes")
        cells += planned(tmp_path, methods=["rp"], seeds=[0])
        status, told = Status.of(cells), list[Cell | None]()
        run_grid(status, "model", lambda _, cell: told.append(cell))
        reasons = list(status.failed.values())
        assert reasons[:4] == [
            "its process was killed, as happens when memory runs out",
            "stopped",
            "its process ended with exit status 5",
            "no luck",
        ]
        assert reasons[4].startswith("FileExistsError")
        assert status.done == {cells[0].place, cells[-1].place}
        assert [cell for cell in told if cell is not None] == cells
        assert not status.running
        assert len(sham_workers) == 4, "started anew after each of the three that ended"
        assert all(process.returncode is not None for process in sham_workers)

    def test_no_more_workers_than_cells(self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
        status = Status.of(planned(tmp_path, methods=["ft"], seeds=[0, 6]), jobs=50)
        run_grid(status, "model")
        assert len(status.done) == 2
        assert 1 <= len(sham_workers) <= 2

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_a_signal_lets_them_save(
        self, number: signal.Signals, sham_workers: list[subprocess.Popen[str]], tmp_path: Path
    ) -> None:
        handlers = [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)]
        status = Status.of(planned(tmp_path, methods=["ft"], seeds=[5, 0]))

        def send() -> None:
            os.kill(os.getpid(), number)
            if number != signal.SIGINT:  # such as timeout and clusters do; a second Ctrl-C does not wait
                time.sleep(0.1)
                os.kill(os.getpid(), number)

        def changed(status: Status, cell: Cell | None) -> None:
            if any(one.step for one in status.running.values()) and not asked:
                asked.append(threading.Thread(target=send))
                asked[0].start()

        asked: list[threading.Thread] = []
        with pytest.raises(KeyboardInterrupt):
            run_grid(status, "model", changed)
        assert status.cells[0].place.is_dir(), "it had time to save"
        assert (status.failed, status.done) == ({}, set())
        assert len(sham_workers) == 1
        assert sham_workers[0].wait() == 0
        assert [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)] == handlers

    def test_nohup_holds(self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            status = Status.of(planned(tmp_path, methods=["ft"], seeds=[0, 6]))
            run_grid(status, "model", lambda *_: os.kill(os.getpid(), signal.SIGHUP))
        finally:
            signal.signal(signal.SIGHUP, before)
        assert len(status.done) == 2

    def test_what_shows_the_status_fails(self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
        def changed(status: Status, cell: Cell | None) -> None:
            if any(one.step for one in status.running.values()):
                raise BrokenPipeError

        status = Status.of(planned(tmp_path, methods=["ft"], seeds=[5]))
        with pytest.raises(BrokenPipeError):
            run_grid(status, "model", changed)
        assert sham_workers[0].wait() == 0, "it was asked to stop"

    def test_none_is_started_after_it_was_asked_to_stop(self, sham_workers: list[subprocess.Popen[str]]) -> None:
        worker = Worker(None)
        worker.ask_to_stop()
        with pytest.raises(WorkerLostError):
            next(worker.do({}))
        assert sham_workers == []

    def test_cores_are_shared(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked: list[int | None] = []
        monkeypatch.setattr(running.os, "cpu_count", lambda: 8)
        monkeypatch.setattr(running, "Worker", asked.append)
        cells = planned(tmp_path, seeds=range(2))
        for jobs in (1, 3, 9):
            running._workers(Status.of(cells, jobs))
        assert asked == [None, 2, 2, 2, 2, 2, 2, 2]


def test_what_several_need_is_made_by_one(tmp_path: Path) -> None:
    made, path = [], tmp_path / "vectors"

    def write(temporary: Path) -> None:
        made.append(temporary)
        time.sleep(0.2)
        temporary.write_text("x")

    threads = [threading.Thread(target=make_once, args=(path, write)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [place.name for place in tmp_path.iterdir()] == ["vectors"]

    def fail(temporary: Path) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        make_once(tmp_path / "other", fail)
    make_once(tmp_path / "other", write)
    assert len(made) == 2


def test_a_baseline_goes_by_the_name_that_the_user_gave_it(tmp_path: Path) -> None:
    cells = planned(tmp_path, methods=["sp:k=0.25", "dp", "ft"], seeds=[0])
    for cell in cells:
        finished_run(cell)
    assert compared(Status.of(cells), tmp_path, "sp:k=0.25").baseline == "sp"
    assert compared(Status.of(cells), tmp_path, None).baseline == "ft"
    (cells[0].place / "run.json").unlink()
    assert compared(Status.of(cells), tmp_path, "sp:k=0.25").baseline == "ft", "its cell failed"
    with pytest.raises(SettingError, match=r"--baseline sp: must be one of the methods: sp:k=0\.25, dp"):
        check_baseline("sp", ["sp:k=0.25", "dp"])


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """``opera compare`` in this process: exit status, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "160")

    def compare(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["opera", "compare", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return compare


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--methods": "ft,dq"}, "unknown method 'dq'"),
        ({"--methods": "ft,ft"}, "--methods: ft is given twice"),
        ({"--methods": "ft,dp:seed=3"}, "dp:seed=3: seed differs between cells"),
        ({"--methods": ","}, "--methods: give at least one"),
        ({"--seeds": "0,x"}, "--seeds: must be whole numbers separated by commas, got 'x'"),
        ({"--seeds": "²"}, "got '²'"),
        ({"--seeds": str(2**32)}, "seed: must be less than"),
        ({"--steps": "0"}, "max_steps: must be greater than or equal to 1"),
        ({"--jobs": "0"}, "--jobs: must be 1 or more"),
        ({"--set": "method=ft"}, "method: differs between cells"),
        ({"--set": "temprature=1"}, "did you mean 'temperature'?"),
        ({"--baseline": "sp"}, "--baseline sp: must be one of the methods: ft, dp"),
        ({"--model": "."}, "not a model folder"),
        ({"--model": "./absent"}, "no such model folder"),
        ({"DATA": "absent"}, "absent: no such file or folder"),
        ({"--out": "taken"}, "is not empty and holds no grid"),
        ({"--out": "file"}, "is a file; give a folder"),
        ({"--out": "file/grid"}, "is not a folder that can be written to"),
    ],
)
def test_wrong_input_exits_2_and_writes_nothing(
    changes: Mapping[str, str],
    message: str,
    call: Call,
    beir: Path,
    static_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").touch()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    options = {"DATA": str(beir), "--model": str(static_model), "--out": "grid", **changes}
    code, out, error = call(options.pop("DATA"), *(word for pair in options.items() for word in pair))
    assert (code, out) == (2, "")
    assert message in " ".join(error.split())
    assert "Traceback" not in error
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_while_it_is_timed(
    call: Call, beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Worker, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield {}

    monkeypatch.setattr(Worker, "do", interrupted)
    code, out, error = call(beir, "--model", static_model, "--out", tmp_path / "grid", "--plan")
    assert (code, out) == (130, "")
    assert "opera: interrupted; nothing was written" in error


def test_a_plan_times_real_steps_and_writes_nothing(call: Call, beir: Path, static_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    code, told, error = call(
        beir, "--model", static_model, "--out", out, "--methods", "ft,dp", "--steps", "100000,200000", "--plan",
        "--set", "batch_size=4",
    )  # fmt: skip
    assert code == 0, error
    assert not out.exists()
    rows = [[part.strip() for part in line.strip("│").split("│")] for line in told.splitlines() if "│ topics" in line]
    assert [row[:5] for row in rows] == [
        ["topics", method, steps, "0, 1, 2", "3"] for steps in ("100,000", "200,000") for method in ("ft", "dp")
    ]
    assert all(row[5].split()[1] in ("s", "min", "h") and row[6] for row in rows)
    assert "0 of 12 cells done, about" in told
    assert "each run keeps its trained model" in told


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grid-cache")


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, cache: Path, beir: Path, static_model: Path) -> SimpleNamespace:
    """A grid after its first call, in which a cell was killed while it trained, one was spoiled and two cannot run."""
    out = tmp_path_factory.mktemp("grids") / "a [grid] of 1"
    spoiled = out / beir.name / "dp" / "steps40" / "seed1"
    killed: list[str] = []

    class Doomed(Worker):
        def do(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
            for news in super().do(job):
                if "step" in news and not killed:
                    assert self._process is not None
                    self._process.kill()
                    killed.append(job["out"])
                yield news

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERA_CACHE", str(cache))
        patch.setattr(running, "Worker", Doomed)
        write_grid_file(out, str(static_model), QUICK)
        spoiled.mkdir(parents=True)
        (spoiled / "notes.txt").touch()
        with pytest.raises(TrainingError) as caught:
            opera.compare(
                beir, model=static_model, out=out, methods=["ft", "dp", FAILING], seeds=[0, 1], steps=[40], **QUICK
            )
    return SimpleNamespace(out=out, cells=out / beir.name, killed=killed, spoiled=spoiled, told=str(caught.value))


class TestGrid:
    """In the order they stand in: each goes on from the one before."""

    @pytest.fixture(autouse=True)
    def _cache(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPERA_CACHE", str(cache))

    def arguments(self, grid: SimpleNamespace, beir: Path, model: Path, methods: str) -> list[object]:
        folder = ["--out", grid.out, "--methods", methods, "--seeds", "0,1", "--steps", "40"]
        return [beir, "--model", model, *folder, *SETTINGS]

    def test_failed_cells_are_told_and_the_rest_went_on(self, grid: SimpleNamespace) -> None:
        finished = {str(path.parent.relative_to(grid.cells)) for path in grid.out.rglob("measures.json")}
        assert finished == {"dp/steps40/seed0", "ft/steps40/seed1"}
        assert grid.killed == [str(grid.cells / "ft/steps40/seed0")]
        reasons = dict(line.split(": ", 1) for line in grid.told.splitlines())
        assert reasons[grid.killed[0]] == "its process was killed, as happens when memory runs out"
        assert "is not empty and holds no run" in reasons[str(grid.spoiled)]
        for seed in (0, 1):
            assert "120 documents" in reasons[str(grid.cells / "sp,range=500,600" / "steps40" / f"seed{seed}")]
        assert len(reasons) == 4

    def test_the_same_call_does_what_is_left(
        self, grid: SimpleNamespace, call: Call, cache: Path, beir: Path, static_model: Path
    ) -> None:
        (grid.spoiled / "notes.txt").unlink()
        before = {path: path.stat().st_mtime_ns for path in grid.out.rglob("run.json")}
        finished = [path for path in before if Run(path.parent).finished]
        kept = {path: path.stat().st_mtime_ns for kind in ("vectors", "rankings") for path in (cache / kind).iterdir()}
        code, told, error = call(
            *self.arguments(grid, beir, static_model, f"ft,dp,{FAILING}"), "--jobs", 2, "--json", "--baseline", "dp"
        )
        assert code == 1
        assert "2 cells failed, see above; the same command tries them again" in error
        assert error.count("done: ") == 2
        comparison = json.loads(told)
        assert comparison["baseline"] == "dp"
        (table,) = comparison["tables"]
        assert [(row["method"], row["seeds"]) for row in table["rows"]] == [("ft", [0, 1]), ("dp", [0, 1])]
        assert all(path.stat().st_mtime_ns == before[path] for path in finished)
        assert not list(grid.out.rglob("checkpoint-*"))
        now = {path: path.stat().st_mtime_ns for kind in ("vectors", "rankings") for path in (cache / kind).iterdir()}
        assert now == kept, "encoded and mined once for all cells"
        assert sorted(path.parent.name for path in kept) == ["rankings"] * 2 + ["vectors"] * 3

    def test_with_all_cells_finished_it_compares_at_once(
        self, grid: SimpleNamespace, call: Call, beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(running, "Worker", None)
        code, told, error = call(*self.arguments(grid, beir, static_model, "ft,dp"))
        assert (code, error) == (0, "")
        assert "topics, 40 steps, 16 test queries" in told
        assert "p: nDCG@10 against ft" in told
        code, told, error = call(*self.arguments(grid, beir, static_model, "ft,dp"), "--plan")
        assert (code, error) == (0, "")
        assert told.rstrip().endswith("4 of 4 cells done")

    def test_other_settings_are_refused(
        self, grid: SimpleNamespace, call: Call, beir: Path, static_model: Path
    ) -> None:
        code, told, error = call(*self.arguments(grid, beir, static_model, "ft"), "--set", "temperature=0.5")
        assert (code, told) == (2, "")
        assert "holds a grid with settings" in error

    def test_cells_are_ordinary_runs_also_after_a_kill(
        self, grid: SimpleNamespace, beir: Path, static_model: Path, tmp_path: Path
    ) -> None:
        alone = opera.adapt(beir, model=static_model, out=tmp_path / "run", method="ft", max_steps=40, **QUICK)
        cell = grid.cells / "ft/steps40/seed0"
        assert weights(cell) == weights(alone.path)
        assert Run(cell).pairs() == alone.pairs()
        assert Run(cell).sampling() is not None
        assert opera.evaluate(cell, beir).measures["nDCG@10"] == pytest.approx(Run(cell).measures["after"]["nDCG@10"])


def test_ctrl_c_saves_and_the_same_command_goes_on(beir: Path, static_model: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "grid", tmp_path / "said"
    cell = out / beir.name / "dp" / "steps600" / "seed0"
    settings = {"per_device_train_batch_size": 8, "learning_rate": 0.001, "temperature": 0.1, "save_steps": 100}
    command = [*OPERA, "compare", str(beir), "--model", str(static_model), "--out", str(out), "--seeds", "0"]
    command += ["--methods", "dp", "--steps", "600"]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    def start() -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            return subprocess.Popen(command, stdout=file, stderr=file)

    def steps() -> list[int]:
        return sorted(int(seal.parent.name.split("-")[1]) for seal in cell.glob("checkpoints/checkpoint-*/whole.json"))

    process = start()
    while process.poll() is None and not steps():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130, log.read_text()
    assert "opera: interrupted; the same command goes on where it stopped" in log.read_text()
    assert "failed" not in log.read_text()
    assert "saving a checkpoint, then stopping" in cell.with_name("seed0.log").read_text()
    assert Run.open(cell).about["status"] == "running"
    last = steps()[-1]
    assert start().wait() == 0, log.read_text()
    run = Run.open(cell)
    assert run.about["training"]["resumed_from"] == last < 600
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", method="dp", max_steps=600, **settings)
    assert weights(cell) == weights(whole.path)
    assert run.pairs() == whole.pairs()
    assert run.trace().num_rows == 600
    ours, theirs = run.sampling(), whole.sampling()
    assert ours is not None
    assert theirs is not None
    assert all(np.array_equal(values, vars(theirs)[name]) for name, values in vars(ours).items())
