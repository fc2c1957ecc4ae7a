"""Grids end to end: real cells that fail, are killed, are stopped and go on."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import opera
from opera.experiments import grid as running
from processes import ForkedWorker
from small_runs import weights

QUICK = {
    "per_device_train_batch_size": 8,
    "learning_rate": 0.01,
    "temperature": 0.1,
    "save_steps": 5,
    "negatives": "hard",
    "range": "1:50",
    "refit": False,
}
SETTINGS = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
CELL = """
import sys
from pathlib import Path
from opera.experiments import grid
from waiting import WaitsForASignal

adapt = grid.adapt
wait = WaitsForASignal(7, Path(sys.argv[1]))  # once, before step 8
grid.adapt = lambda *data, **settings: adapt(*data, callbacks=[wait], **settings)
grid.main()
"""


def waiting_cell(folder: Path) -> tuple[Callable[..., ForkedWorker], Path]:
    """A cell that waits at the first training's 8th step for a signal, and the file it creates there."""
    script, reached = folder / "cell.py", folder / "reached"
    script.write_text(CELL)
    return lambda _, **options: ForkedWorker([sys.executable, str(script), str(reached)], **options), reached


def times_in(cache: Path) -> dict[Path, int]:
    """When the files of cache entries were written."""
    files = (path for kind in ("vectors", "rankings") for path in (cache / kind).glob("*/*"))
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("grid-cache")


@pytest.fixture(scope="module")
def grid(tmp_path_factory, cache, beir, static_model) -> SimpleNamespace:
    """A grid after its first call, in which a cell was killed while it trained and one cannot run."""
    folder = tmp_path_factory.mktemp("grids")
    out, (start, reached) = folder / "a [grid] of 1", waiting_cell(folder)
    spoiled = out / beir.name / "dp" / "steps12" / "seed1"

    def first_doomed(command: list[str], **options: Any) -> ForkedWorker:
        process = start(command, **options)
        if not reached.exists():
            threading.Thread(target=kill_while_it_trains, args=(process,), daemon=True).start()
        return process

    def kill_while_it_trains(process: ForkedWorker) -> None:
        while not reached.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERA_CACHE", str(cache))
        patch.setattr(running.subprocess, "Popen", first_doomed)
        spoiled.mkdir(parents=True)
        (spoiled / "notes.txt").touch()
        with pytest.raises(opera.TrainingError) as caught:
            opera.compare(beir, model=static_model, out=out, methods=["ft", "dp"], seeds=[0, 1], steps=[12], **QUICK)
    return SimpleNamespace(out=out, cells=out / beir.name, spoiled=spoiled, message=str(caught.value))


class TestGrid:
    """In the order they stand in: each goes on from the one before."""

    @pytest.fixture(autouse=True)
    def _cache(self, cache, monkeypatch) -> None:
        monkeypatch.setenv("OPERA_CACHE", str(cache))

    def test_failed_cells_are_reported_and_the_rest_went_on(self, grid):
        finished = {str(path.parent.relative_to(grid.cells)) for path in grid.out.rglob("measures.json")}
        assert finished == {"dp/steps12/seed0", "ft/steps12/seed1"}
        reasons = dict(line.split(": ", 1) for line in grid.message.splitlines())
        assert (
            reasons[str(grid.cells / "ft/steps12/seed0")] == "its process was killed, as happens when memory runs out"
        )
        assert "is not empty and holds no run" in reasons[str(grid.spoiled)]
        assert len(reasons) == 2

    def test_the_same_call_does_what_is_left(self, grid, compare, cache, beir, static_model, monkeypatch):
        monkeypatch.setattr(running.subprocess, "Popen", ForkedWorker)
        before = {path: path.stat().st_mtime_ns for path in grid.out.rglob("run.json")}
        finished = [path for path in before if opera.Run(path.parent).finished]
        cached = times_in(cache)
        folder = ["--out", grid.out, "--methods", "ft,dp", "--seeds", "0,1", "--steps", "12"]
        options = [*folder, *SETTINGS, "--jobs", 2, "--json", "--baseline", "dp"]
        done = compare(beir, "--model", static_model, *options, status=1)
        assert "1 run failed, see above; the same command tries again" in done.stderr
        assert done.stderr.count("done: ") == 1
        comparison = json.loads(done.stdout)
        assert comparison["baseline"] == "dp"
        (table,) = comparison["tables"]
        assert [(row["method"], row["seeds"]) for row in table["rows"]] == [("ft", [0, 1]), ("dp", [0])]
        assert all(path.stat().st_mtime_ns == before[path] for path in finished)
        assert not list(grid.out.rglob("checkpoint-*"))
        assert times_in(cache) == cached, "encoded and mined once for all cells"

    def test_cells_are_ordinary_runs_also_after_a_kill(self, grid, beir, static_model, tmp_path):
        alone = opera.adapt(beir, model=static_model, out=tmp_path / "run", method="ft", max_steps=12, **QUICK)
        cell = grid.cells / "ft/steps12/seed0"
        assert weights(opera.Run(cell)) == weights(alone)
        assert opera.Run(cell).pairs() == alone.pairs()
        assert len(opera.Run(cell).draws())
        assert opera.evaluate(beir, model=cell).measures["nDCG@10"] == pytest.approx(
            opera.Run(cell).measures["final"]["nDCG@10"]
        )
