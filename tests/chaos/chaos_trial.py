"""The trials of chaos.py: commands on the tiny world of the tests, disturbed, and what each of them must end with."""

import hashlib
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny; threads would only wait for each other

from opera.run_folder.folder import Run, holds_run
from opera.run_folder.housekeeping import new_folder
from opera.run_folder.reranker_run import RerankerRun, holds_reranker

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS))

from backbones import write_reranker  # noqa: E402
from processes import Child, start  # noqa: E402
from small_runs import weights  # noqa: E402
from tiny_world import write_beir, write_bert_model, write_static_model  # noqa: E402

NEVER = 10**9
Outcome = dict[str, str]
"""What two runs of a command are compared by: digests by name."""

SHORT = ["--steps", "9", "--batch-size", "8", "--lr", "0.05", "--set", "temperature=0.1", "--set", "save_steps=3"]


@dataclass(frozen=True)
class World:
    """Where everything lies that the commands read: data, a static model, a transformer and a finished grid.

    ``run`` is the run that ``train overwrite`` replaces, and whose labels ``review`` judges.
    """

    home: Path

    beir = property(lambda self: self.home / "topics")
    static = property(lambda self: self.home / "static")
    bert = property(lambda self: self.home / "bert" / "model")
    grid = property(lambda self: self.home / "grid")
    run = property(lambda self: self.home / "run")
    reranker = property(lambda self: self.home / "reranker" / "model")

    def write(self) -> None:
        """Write data and models."""
        write_beir(self.beir)
        write_static_model(self.static)
        write_bert_model(self.bert)
        self.reranker.parent.mkdir()
        write_reranker(self.reranker)


@dataclass(frozen=True)
class Command:
    """A command that is disturbed; ``words`` are its arguments, ``outcome`` what it ended with, ``file`` its output."""

    name: str
    words: Callable[[World, Path], list[str]]
    outcome: Callable[[Path], Outcome]
    file: str

    def arguments(self, world: World, out: Path) -> list[str]:
        """The arguments of a call, with ``--resume`` or ``--overwrite`` where something is left."""
        words = self.words(world, out)
        if self.name == OVERWRITE and not holds_run(new_folder(out)) and Run.open(out).settings["seed"] == 0:
            return [*words, "--overwrite"]
        if words[0] == "train" and holds_run(out):
            return [*words, "--resume"]
        if words[0] == "train" and holds_reranker(out):
            return [*words, "--overwrite"]
        if words[0] in ("mine", "score", "evaluate", "report", "show") and out.exists():
            return [*words, "--overwrite"]
        return words


def run_outcome(folder: Path) -> Outcome:
    """Everything a run ends with, but the seconds."""
    run = Run.open(folder)
    record = run.record.model_dump()
    for name in ("seconds", "started", "folder", "training"):
        record.pop(name)
    training = run.training.model_dump(exclude={"resumed_from"})
    files = ("measures.json", "draws.parquet", "model/README.md")
    return {
        "weights": weights(run),
        "record": digest(repr((record, training)).encode()),
        "per_query": digest(repr(run.per_query().to_pydict()).encode()),
        "pairs": digest(repr(run.pairs().to_pydict()).encode()),
        "trace": digest(repr(run.trace().drop_columns("seconds").to_pydict()).encode()),
        **{name: digest((folder / name).read_bytes()) for name in files},
    }


def reranker_outcome(folder: Path) -> Outcome:
    """Everything a reranker ends with, but the seconds."""
    run = RerankerRun.open(folder)
    record = run.record.model_dump(exclude={"seconds", "seconds_per_query"})
    return {
        "record": digest(repr(record).encode()),
        "per_query": digest(repr(run.per_query().to_pydict()).encode()),
        **{path.name: digest(path.read_bytes()) for path in sorted(run.model_path.iterdir())},
    }


def grid_outcome(folder: Path) -> Outcome:
    """What every cell ends with."""
    outcome: Outcome = {}
    for record in sorted(folder.rglob("run.json")):
        cell = record.parent.relative_to(folder)
        outcome |= {f"{cell} {name}": digest for name, digest in run_outcome(record.parent).items()}
    return outcome


def file_outcome(path: Path) -> Outcome:
    """The bytes of a file."""
    return {path.name: digest(path.read_bytes())}


def review_outcome(folder: Path) -> Outcome:
    """The opinions of a judge, and the page, whose command names the folder."""
    page = re.sub('"command": ?"[^"]*"', "", (folder / "review.html").read_text(encoding="utf-8"))
    return {**file_outcome(folder / "judge.json"), "page": digest(page.encode())}


def _train(model: str, *more: str) -> Callable[[World, Path], list[str]]:
    def words(world: World, out: Path) -> list[str]:
        return ["train", str(world.beir), "--model", str(getattr(world, model)), "--out", str(out), *SHORT, *more]

    return words


def _train_reranker(world: World, out: Path) -> list[str]:
    words = ["train", str(world.beir), "--kind", "reranker", "--model", str(world.reranker), "--out", str(out)]
    return [*words, "--steps", "4", "--batch-size", "8", "--depth", "10"]


def _compare(world: World, out: Path) -> list[str]:
    words = ["compare", str(world.beir), "--model", str(world.static), "--out", str(out), *SHORT]
    return [*words, "--methods", "ft,sp:k=0.5", "--seeds", "0,1", "--json"]


def _compare_models(world: World, out: Path) -> list[str]:
    models = ["--model", str(world.static), "--model", str(world.bert)]
    return ["compare", str(world.beir), *models, "--out", str(out), *SHORT, "--methods", "ft", "--seeds", "0", "--json"]


def _review(world: World, out: Path) -> list[str]:
    return ["review", str(out), "--judge", str(world.reranker), "--judge-thresholds", "-0.1:0.1"]


def _report(world: World, out: Path) -> list[str]:
    return ["report", str(world.grid), "--out", str(out)]


def _show(world: World, out: Path) -> list[str]:
    return ["show", str(world.run), "--out", str(out)]


def _file(name: str, *more: str, option: str = "--out") -> Callable[[World, Path], list[str]]:
    return lambda world, out: [name, str(world.beir), "--model", str(world.static), option, str(out), *more]


OVERWRITE, REVIEW = "train overwrite", "review"
_HARD = ("--method", "dp", "--negatives", "hard", "--range", "2:30", "--set", "refit=true")
COMMANDS = {
    command.name: command
    for command in (
        Command("train dp", _train("static", *_HARD), run_outcome, "run"),
        Command(OVERWRITE, _train("static", "--seed", "1", "--set", "refit=false"), run_outcome, "run"),
        Command("train bert", _train("bert", "--set", "refit=false", "--set", "eval_steps=3"), run_outcome, "run"),
        Command("train adapter", _train("bert", "--adapter", "query"), run_outcome, "run"),
        Command("train reranker", _train_reranker, reranker_outcome, "run"),
        Command("compare", _compare, grid_outcome, "grid"),
        Command("compare models", _compare_models, grid_outcome, "grid"),
        Command("mine", _file("mine", "--range", "2:30"), file_outcome, "mined.jsonl"),
        Command("score", _file("score", "--cbs", "--cbs-pool", "50"), file_outcome, "pairs.parquet"),
        Command("evaluate", _file("evaluate", "--json", option="--run-file"), file_outcome, "ranking.trec"),
        Command("report", _report, file_outcome, "report.html"),
        Command("show", _show, file_outcome, "show.html"),
        Command(REVIEW, _review, review_outcome, "run"),
    )
}


def files_in(folder: Path) -> set[str]:
    """Every file and folder in a folder, relative to it, but the empty locks of a killed process."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".lock"}


def environment(cache: Path, **more: str) -> Mapping[str, str]:
    """Environment variables of a disturbed command."""
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return {"OPERA_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **more}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


KILLED, STOPPED = -signal.SIGKILL, 130


@dataclass
class Row:
    """A trial as recorded: ``points`` are where each fault struck, ``left`` are files that should not be there."""

    trial: str
    command: str
    fault: str
    kills: int = 0
    points: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    equal: bool = False
    left: list[str] = field(default_factory=list)
    traceback: bool = False
    seconds: float = 0.0
    last: str = ""


@dataclass(frozen=True)
class Whole:
    """A command that nobody disturbed: its end, its files, its changes, how long it took."""

    outcome: Outcome
    files: frozenset[str]
    cached: frozenset[str]
    changes: int
    worker_changes: int
    seconds: float


class Trial:
    """A command in a folder of its own, and the record of what happened to it."""

    def __init__(self, name: str, command: Command, fault: str, world: World, whole: Whole | None, home: Path) -> None:
        self.row, self.command, self.world, self.whole = Row(name, command.name, fault), command, world, whole
        self.home, self.out, self.cache = home, home / "out" / command.file, home / "cache"
        self.rng, self._calls = random.Random(name), 0
        for folder in (self.out.parent, self.cache):
            folder.mkdir(parents=True, exist_ok=True)
        if command.name in (OVERWRITE, REVIEW):
            shutil.copytree(world.run, self.out)

    def start(self, fault: str = "none", at: int = NEVER, out: Path | None = None, **more: str) -> Child:
        """Start the command, or what finishes it; a fault strikes at the n-th change of its output and cache.

        Work between two changes is lost with the process, so faults at other moments have the same effect.
        """
        self._calls += 1
        words = self.command.arguments(self.world, out or self.out)
        log = self.home / f"log{self._calls}"
        script, watched = Path(__file__).with_name("under_fault.py"), f"{self.out.parent}{os.pathsep}{self.cache}"
        return start([str(script), fault, str(at), watched, *words], log, **environment(self.cache, **more))

    def end(self, child: Child) -> int:
        """Wait for a process, and record how it ended."""
        status, text = child.wait(), child.log.read_text(errors="replace")
        row = self.row
        row.statuses.append(status)
        row.kills += (status == KILLED) + text.count("its process was killed")  # of a grid's workers
        if status in (KILLED, STOPPED) or "struck at" in text:
            row.points.append(self._point(text))
        if "Traceback" in text and not row.traceback:
            row.traceback, row.last = True, last_line(text)
        if self.command.name == OVERWRITE and self.whole is not None:
            runs = self.whole.outcome, run_outcome(self.world.run)
            row.last = row.last or ("" if run_outcome(self.out) in runs else "neither the old run nor the new one")
        return status

    def run(self, fault: str = "none", at: int = NEVER, **more: str) -> int:
        """Run the command to its end."""
        return self.end(self.start(fault, at, **more))

    def finish(self) -> Row:
        """Let the same command finish, and compare."""
        assert self.whole is not None
        status = self.run()
        row = self.row
        if status == 0:
            self.compare(self.out)
        else:
            row.last = row.last or last_line((self.home / f"log{self._calls}").read_text(errors="replace"))
        return row

    def compare(self, out: Path) -> None:
        """Compare an end with the undisturbed one."""
        row, outcome = self.row, self.command.outcome(out)
        row.equal = outcome == self.whole.outcome and not row.last.startswith("neither")
        if outcome != self.whole.outcome:
            names = {name for name, _ in outcome.items() ^ self.whole.outcome.items()}
            row.last = row.last or f"differs: {', '.join(sorted(names))}"
        new = {f"cache/{name}" for name in files_in(self.cache) - self.whole.cached}
        written = files_in(out.parent) - self.whole.files if out == self.out else set()
        # a stopped training saves one more checkpoint
        row.left = sorted(new | {name for name in written if "/checkpoints/" not in name})

    def _point(self, text: str) -> str:
        """Where a fault struck: the file that was about to change, or what the log says last."""
        struck = [line.removeprefix("struck at ") for line in text.splitlines() if line.startswith("struck at ")]
        if struck:
            return str(Path(struck[-1]).relative_to(self.home))
        phases = [line.rsplit(" (", 1)[0] for line in text.splitlines() if " so far" in line]
        return phases[-1] if phases else "start"


def last_line(text: str) -> str:
    """The last line that a process printed, without the count of its changes."""
    lines = [line for line in text.splitlines() if line.strip() and not line.endswith(" changes")]
    return lines[-1][:300] if lines else ""
