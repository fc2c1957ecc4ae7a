"""Disturb every command, let the same command finish, and compare with one that nobody disturbed.

``make chaos`` writes the record tests/chaos/chaos.csv and its summary in docs/security.md. A trial draws its moments
from its name. One that the record has is not repeated: a study that was stopped goes on.
"""

import argparse
import csv
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from chaos_trial import COMMANDS, Command, Row, Trial, Whole, World, files_in

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from page import ROOT, fill

PAGE = ROOT / "docs" / "security.md"
RESULTS = Path(__file__).with_name("chaos.csv")
REFUSED = 2


def killed_at_changes(trial: Trial, where: str = "parent") -> Row:
    """Killed at a random change, and twice more in the calls that were to finish."""
    count = trial.whole.changes if where == "parent" else trial.whole.worker_changes
    for most in (count, max(1, count // 2), max(1, count // 3)):
        trial.run("kill", trial.rng.randint(1, most), FAULT_IN=where)
    return trial.finish()


def killed_in_worker(trial: Trial) -> Row:
    """A grid's workers are killed, each at the same change."""
    return killed_at_changes(trial, "worker")


def killed_at_moments(trial: Trial) -> Row:
    """Killed twice after a random share of the seconds that it takes."""
    for most in (1.0, 0.6):
        child = trial.start()
        time.sleep(trial.rng.uniform(0.02, most) * trial.whole.seconds)
        child.process.kill()
        trial.end(child)
    return trial.finish()


def terminated(trial: Trial, fault: str = "term") -> Row:
    """SIGTERM at a random change."""
    trial.run(fault, trial.rng.randint(1, trial.whole.changes))
    return trial.finish()


def full_disk(trial: Trial) -> Row:
    """From a random change on, no file can be opened for writing."""
    return terminated(trial, "full")


def small_files(trial: Trial) -> Row:
    """No file may be longer than a random limit (RLIMIT_FSIZE)."""
    trial.run(FILE_LIMIT=str(trial.rng.randint(200, 60_000)))
    return trial.finish()


def one_cache(trial: Trial) -> Row:
    """Two processes at once, each with its own output, in one empty cache."""
    other = trial.out.parent.with_name("out2") / trial.command.file
    other.parent.mkdir()
    children = [trial.start(), trial.start(out=other)]
    if [trial.end(child) for child in children] == [0, 0]:
        trial.compare(other)
        if not trial.row.equal:
            return trial.row
    return trial.finish()


def one_folder(trial: Trial) -> Row:
    """Two processes at once into one folder: one is refused, or finds everything done."""
    children = [trial.start(), trial.start()]
    statuses = sorted(trial.end(child) for child in children)
    row = trial.finish()
    if statuses not in ([0, 0], [0, REFUSED]):
        row.equal, row.last = False, row.last or f"statuses {statuses}"
    return row


TRAININGS, FILES = (
    ("train dp", "train overwrite", "train bert", "train adapter"),
    ("mine", "score", "evaluate", "report", "show"),
)
PLAN: list[tuple[Callable[[Trial], Row], tuple[str, ...], int]] = [
    (full_disk, tuple(COMMANDS), 2),
    (small_files, tuple(COMMANDS), 1),
    (one_folder, ("train dp", "compare"), 2),
    (one_cache, ("train dp", "mine"), 2),
    (terminated, (*TRAININGS, "compare"), 2),
    (killed_at_changes, FILES, 14),
    (killed_at_moments, FILES, 5),
    (killed_at_changes, ("review",), 4),
    (killed_at_moments, ("review",), 2),
    (killed_at_changes, TRAININGS, 9),
    (killed_at_moments, TRAININGS, 5),
    (killed_at_changes, ("train reranker",), 3),
    (killed_at_moments, ("train reranker",), 2),
    (killed_at_changes, ("compare",), 4),
    (killed_in_worker, ("compare",), 4),
    (killed_at_moments, ("compare",), 3),
    (killed_at_changes, ("compare models",), 3),
    (killed_at_moments, ("compare models",), 2),
]
"""What is tried: the fault, the commands, and how many trials of each."""


def undisturbed(command: Command, world: World, home: Path) -> Whole:
    """Run a command alone, once to count its changes, and a grid again to count those of its workers."""
    counts = []
    for where in ("parent", "worker") if command.name == "compare" else ("parent",):
        trial = Trial(where, command, "none", world, None, home / f"whole {command.name} {where}")
        started = time.perf_counter()
        child = trial.start(FAULT_IN=where)
        status = child.wait()
        assert status == 0, child.log.read_text()
        seconds = time.perf_counter() - started
        logs = (child.log, *trial.out.rglob("*.log"))  # a grid's worker writes to the log of its cell
        counted = [number for log in logs for number in re.findall(r"^(\d+) changes$", log.read_text(), re.MULTILINE)]
        counts.append(max(map(int, counted)))
    return Whole(
        command.outcome(trial.out),
        frozenset(files_in(trial.out.parent)),
        frozenset(files_in(trial.cache)),
        counts[0],
        counts[-1],
        seconds,
    )


def prepare_world(home: Path) -> World:
    """Write data and models, the grid that reports read, and the run that a new run replaces."""
    world = World(home / "world")
    world.write()
    trial = Trial("grid", COMMANDS["compare"], "none", world, None, home / "grid")
    assert trial.run() == 0, (trial.home / "log1").read_text()
    trial.out.rename(world.grid)
    shutil.copytree(next(world.grid.rglob("ft/*/seed0")), world.run)
    return world


def run_trials(record: Path, only: Sequence[str] | None, home: Path) -> None:
    """Make the trials of the plan that a record lacks, and add each to it when it is done."""
    done = {row["trial"] for row in read_record(record)}
    trials = [
        (f"{command}, {fault.__name__} {number}", command, fault)
        for fault, commands, count in PLAN
        for command in commands
        for number in range(count)
        if not only or {command, fault.__name__} & set(only)
    ]
    waiting = [trial for trial in trials if trial[0] not in done]
    if not waiting:
        return
    world, wholes = prepare_world(home), dict[str, Whole]()
    for name, command, fault in waiting:
        if command not in wholes:
            wholes[command] = undisturbed(COMMANDS[command], world, home)
        folder, started = Path(tempfile.mkdtemp(dir=home)), time.perf_counter()
        trial = Trial(name, COMMANDS[command], fault.__name__, world, wholes[command], folder)
        row = trial.row
        try:
            fault(trial)
        except Exception as error:
            row.last = f"{type(error).__name__}: {error}"[:300]
        row.seconds = round(time.perf_counter() - started, 1)
        add_to_record(record, row)
        print(f"{name}: {'equal' if row.equal else 'NOT EQUAL'} {row.statuses} {row.left or ''} {row.last}", flush=True)
        if row.equal and not row.left and not row.traceback:
            shutil.rmtree(folder)


def read_record(record: Path) -> list[dict[str, str]]:
    """The trials made so far."""
    if not record.exists():
        return []
    with record.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def add_to_record(record: Path, row: Row) -> None:
    """Append a trial."""
    new = not record.exists()
    with record.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        if new:
            writer.writeheader()
        lists = {"points": "; ".join(row.points), "statuses": "; ".join(map(str, row.statuses))}
        writer.writerow({**asdict(row), **lists, "left": "; ".join(row.left)})


def summary(record: Sequence[dict[str, str]]) -> str:
    """Say how many trials there are, and that they all ended well."""
    assert not any(row["left"] or row["traceback"] == "True" for row in record), "the page says that none did"
    equal, kills = sum(row["equal"] == "True" for row in record), sum(int(row["kills"]) for row in record)
    return (
        f"In {equal} of {len(record)} trials, with {kills} kills, all files were byte-identical. After the repeated "
        "command, no trial had left a file behind or printed a traceback.\n"
    )


def main() -> None:
    """Make the trials that the record lacks, then fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", action="append", help="a command or a fault, by name; repeatable")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="opera-chaos-"))
    run_trials(options.out, options.only, home)
    if all(row["equal"] == "True" for row in read_record(options.out)):  # what went wrong stays there
        shutil.rmtree(home)
    if options.out == RESULTS:
        fill(PAGE, {"chaos": summary(read_record(RESULTS))})


if __name__ == "__main__":
    main()
