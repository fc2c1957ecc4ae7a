"""The commands that chaos.py disturbs, on the tiny world of the tests, and what each of them must end with."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny; threads would only wait for each other

from opera.runs.folder import Run, holds_run

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS))

from small_runs import weights  # noqa: E402
from tiny_world import write_beir, write_bert_model, write_static_model  # noqa: E402

Outcome = dict[str, str]
"""What two runs of a command are compared by: digests by name."""

SHORT = ["--steps", "9", "--batch-size", "8", "--lr", "0.05", "--set", "temperature=0.1", "--set", "save_steps=3"]


@dataclass(frozen=True)
class World:
    """Where everything lies that the commands read.

    Attributes:
        beir: the data set.
        static: a static model.
        bert: a small transformer.
        grid: a finished grid, for reports.
    """

    home: Path

    beir = property(lambda self: self.home / "topics")
    static = property(lambda self: self.home / "static")
    bert = property(lambda self: self.home / "bert" / "model")
    grid = property(lambda self: self.home / "grid")

    def write(self) -> None:
        """Write data and models, unless they are there."""
        if not self.bert.exists():
            write_beir(self.beir)
            write_static_model(self.static)
            write_bert_model(self.bert)


@dataclass(frozen=True)
class Command:
    """A command that is disturbed.

    Attributes:
        name: its name in the table.
        words: its arguments, given the world and the path to write.
        outcome: what it ended with, given that path.
        file: name of what it writes.
        reads_grid: whether it reads a finished grid.
    """

    name: str
    words: Callable[[World, Path], list[str]]
    outcome: Callable[[Path], Outcome]
    file: str

    def arguments(self, world: World, out: Path) -> list[str]:
        """The arguments of a call, with ``--resume`` or ``--overwrite`` where something is left."""
        words = self.words(world, out)
        if words[0] == "train" and holds_run(out):
            return [*words, "--resume"]
        if words[0] in ("mine", "score", "evaluate", "report") and out.exists():
            return [*words, "--overwrite"]
        return words


def run_outcome(folder: Path) -> Outcome:
    """Everything a run ends with, but the seconds."""
    run = Run.open(folder)
    record = run.record.model_dump()
    for name in ("seconds", "started", "training"):
        record.pop(name)
    training = run.training.model_dump(exclude={"resumed_from"})
    files = ("measures.json", "draws.parquet", "model/README.md")
    return {
        "weights": weights(run),
        "record": _digest(repr((record, training)).encode()),
        "per_query": _digest(repr(run.per_query().to_pydict()).encode()),
        "pairs": _digest(repr(run.pairs().to_pydict()).encode()),
        "trace": _digest(repr(run.trace().drop_columns("seconds").to_pydict()).encode()),
        **{name: _digest((folder / name).read_bytes()) for name in files},
    }


def grid_outcome(folder: Path) -> Outcome:
    """What every cell ends with, and the grid's own file."""
    outcome = {"grid.json": _digest((folder / "grid.json").read_bytes())}
    for record in sorted(folder.rglob("run.json")):
        cell = record.parent.relative_to(folder)
        outcome |= {f"{cell} {name}": digest for name, digest in run_outcome(record.parent).items()}
    return outcome


def file_outcome(path: Path) -> Outcome:
    """The bytes of a file."""
    return {path.name: _digest(path.read_bytes())}


def _train(model: str, *more: str) -> Callable[[World, Path], list[str]]:
    def words(world: World, out: Path) -> list[str]:
        return ["train", str(world.beir), "--model", str(getattr(world, model)), "--out", str(out), *SHORT, *more]

    return words


def _compare(world: World, out: Path) -> list[str]:
    words = ["compare", str(world.beir), "--model", str(world.static), "--out", str(out), *SHORT]
    return [*words, "--methods", "ft,sp:k=0.5", "--seeds", "0,1", "--json"]


def _file(name: str, *more: str, option: str = "--out") -> Callable[[World, Path], list[str]]:
    return lambda world, out: [name, str(world.beir), "--model", str(world.static), option, str(out), *more]


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "train dp",
            _train("static", "--method", "dp", "--negatives", "hard", "--range", "2:30", "--set", "refit=true"),
            run_outcome,
            "run",
        ),
        Command("train bert", _train("bert", "--set", "refit=false", "--set", "eval_steps=3"), run_outcome, "run"),
        Command("train adapter", _train("bert", "--adapter", "query"), run_outcome, "run"),
        Command("compare", _compare, grid_outcome, "grid"),
        Command("mine", _file("mine", "--range", "2:30"), file_outcome, "mined.jsonl"),
        Command("score", _file("score", "--cbs", "--cbs-pool", "50"), file_outcome, "pairs.parquet"),
        Command("evaluate", _file("evaluate", "--json", option="--run-file"), file_outcome, "ranking.trec"),
        Command(
            "report", lambda world, out: ["report", str(world.grid), "--out", str(out)], file_outcome, "report.html"
        ),
    )
}


def files_in(folder: Path) -> set[str]:
    """Every file and folder in a folder, relative to it, but the empty locks of a killed process."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".lock"}


def environment(cache: Path, **more: str) -> Mapping[str, str]:
    """Environment variables of a disturbed command."""
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return {"OPERA_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **more}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
