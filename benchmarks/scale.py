"""A dry run of the whole pipeline on made-up data: load, encode, score, mine, train, evaluate, by the real commands.

    OMP_NUM_THREADS=1 python benchmarks/scale.py 100000 1000000
    OMP_NUM_THREADS=1 python benchmarks/scale.py 1000000 10000000 --folder /scratch/opera-scale

The numbers are those of documents and training pairs. Each phase is a process of its own, and is watched from outside:
seconds, peak resident memory (``VmHWM``), and the peak of the part that no file stands behind (``RssAnon``); mapped
pages of files count as resident, but the system takes them back when it needs them. A phase that is done is not run
again, and a training that was stopped goes on from its checkpoint. Writes ``benchmarks/scale.csv`` and the table of
docs/scale.md. ``--folder`` holds the data, the cache and the run, and stays; without it they go when all is done.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from page import ROOT, fill, table_lines

PAIRS_PER_QUERY = 1_000
PER_TOPIC = 2_000
"""Documents of a topic: those that share words with each other and with the queries whose positives they are."""
EVALUATED = {"dev": 500, "test": 500}
JUDGED = 10
CHUNK = 100_000
WORDS = 5_000
SYLLABLES = [
    "ba",
    "do",
    "ki",
    "lu",
    "ma",
    "ne",
    "po",
    "ra",
    "si",
    "to",
    "ve",
    "wu",
    "ga",
    "fi",
    "chu",
    "len",
    "mor",
    "tas",
]
MODEL = ROOT / "../shared/models/potion-base-4m"
FIELDS = ("documents", "pairs", "phase", "seconds", "resident_mb", "anonymous_mb", "written_mb")
POLL = 0.02


@dataclass(frozen=True)
class Size:
    """How large the made-up data are."""

    documents: int
    pairs: int

    @property
    def queries(self) -> int:
        """Training queries."""
        return self.pairs // PAIRS_PER_QUERY

    @property
    def topics(self) -> int:
        """Topics of the corpus."""
        return -(-self.documents // PER_TOPIC)


def write_data(home: Path, size: Size) -> None:
    """Write documents, queries and pairs as Parquet tables, a chunk at a time."""
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES])[:WORDS]
    _write(home / "documents.parquet", _texts("doc_id", "d", size.documents, 20, size.topics, words, rng))
    queries = size.queries + sum(EVALUATED.values())
    _write(home / "queries.parquet", _texts("query_id", "q", queries, 6, size.topics, words, rng))
    _write(home / "train.parquet", _pairs(range(size.queries), PAIRS_PER_QUERY, size))
    first = size.queries
    for split, count in EVALUATED.items():
        _write(home / f"{split}.parquet", _pairs(range(first, first + count), JUDGED, size))
        first += count


def _texts(
    key: str, prefix: str, count: int, length: int, topics: int, words: np.ndarray, rng: np.random.Generator
) -> Iterator[pa.Table]:
    """Yield texts of random words, half of which belong to the topic of the row."""
    for start in range(0, count, CHUNK):
        rows = np.arange(start, min(start + CHUNK, count))
        drawn = rng.integers(WORDS, size=(len(rows), length))
        topical = (rows[:, None] % topics * 7919 + rng.integers(12, size=(len(rows), length // 2)) * 613) % WORDS
        drawn[:, : length // 2] = topical
        columns = [pa.array(words[column]) for column in drawn.T]
        text = pc.binary_join_element_wise(*columns, " ")
        yield pa.table({key: _ids(prefix, rows), "text": text})


def _pairs(queries: range, per_query: int, size: Size) -> Iterator[pa.Table]:
    """Yield pairs of a query and distinct documents of its topic."""
    for start in range(queries.start, queries.stop, CHUNK // per_query):
        query = np.repeat(np.arange(start, min(start + CHUNK // per_query, queries.stop)), per_query)
        place = (query * 31 + np.tile(np.arange(per_query), len(query) // per_query)) % PER_TOPIC
        document = np.minimum(query % size.topics + place * size.topics, size.documents - 1)
        yield pa.table({"query_id": _ids("q", query), "doc_id": _ids("d", document)})


def _ids(prefix: str, rows: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(prefix), pc.cast(pa.array(rows), pa.string()), "")


def _write(path: Path, tables: Iterator[pa.Table]) -> None:
    first = next(tables)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def phases(home: Path, model: Path, steps: int) -> dict[str, list[str]]:
    """Name the arguments of ``opera`` for each phase, in order; the first loads the data only."""
    tables = [f"--pairs={split}={home / split}.parquet" for split in ("train", *EVALUATED)]
    tables += [f"--documents={home / 'documents.parquet'}", f"--queries={home / 'queries.parquet'}"]
    run, base = home / "run", ["--model", str(model)]
    train = ["--method=dp", "--negatives=hard", "--range=10:50", f"--steps={steps}", "--batch-size=256"]
    train += ["--set=save_steps=50", "--set=guard=false"]
    resumed = ["--resume"] if (run / "run.json").is_file() else []
    return {
        "load": ["load", *tables],
        "encode, evaluate": ["evaluate", *tables, *base],
        "score": ["score", *tables, *base, f"--out={home / 'scores.parquet'}", "--overwrite"],
        "mine": ["mine", *tables, *base, f"--out={home / 'mined.tsv'}", "--range=10:50", "--keep=5", "--overwrite"],
        "train": ["train", *tables, *base, f"--out={run}", *train, *resumed],
        "evaluate the run": ["evaluate", *tables, "--model", str(run)],
    }


def command(arguments: list[str]) -> list[str]:
    """Return the command of a phase; loading has none of its own, so Python's API does it."""
    if arguments[0] != "load":
        return [sys.executable, "-m", "opera", *arguments]
    given = [argument.partition("=")[2] for argument in arguments[1:]]
    splits = dict(pair.split("=", 1) for pair in given[:-2])
    code = f"import opera; print(opera.load_data(pairs={splits!r}, documents={given[-2]!r}, queries={given[-1]!r}))"
    return [sys.executable, "-c", code]


def watch(arguments: list[str], home: Path, log: Path) -> tuple[float, int, int]:
    """Run a command; return its seconds, and its peaks of resident and of anonymous memory in bytes."""
    places = {"OPERA_CACHE": str(home / "cache"), "PYTHONPATH": str(ROOT / "src")}
    with log.open("w") as file:
        started = time.monotonic()
        process = subprocess.Popen(arguments, env={**os.environ, **places}, stdout=file, stderr=file)
        status, peaks = Path(f"/proc/{process.pid}/status"), [0, 0]
        while process.poll() is None:
            for at, name in enumerate(("VmHWM", "RssAnon")):
                peaks[at] = max(peaks[at], _field(status, name))
            time.sleep(POLL)
    if process.returncode:
        sys.exit(f"{' '.join(arguments)}\n{log.read_text()[-3000:]}\nexit status {process.returncode}")
    return time.monotonic() - started, peaks[0], peaks[1]


def _field(status: Path, name: str) -> int:
    try:
        lines = status.read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def disk(home: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


def dry_run(size: Size, home: Path, model: Path, steps: int) -> None:
    """Run every phase that has no row yet, and append its row."""
    if not (home / "test.parquet").is_file():
        write_data(home, size)
    results = ROOT / "benchmarks" / "scale.csv"
    for phase, arguments in phases(home, model, steps).items():
        rows = read(results)
        key = (str(size.documents), str(size.pairs), phase)
        if any((row["documents"], row["pairs"], row["phase"]) == key for row in rows):
            continue
        before = disk(home)
        seconds, resident, anonymous = watch(command(arguments), home, home / f"{arguments[0]}.log")
        figures = [seconds, *(number / 1e6 for number in (resident, anonymous, disk(home) - before))]
        rows.append(dict(zip(FIELDS, (*key, *(f"{figure:.0f}" for figure in figures)), strict=True)))
        print(rows[-1], flush=True)
        with results.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def read(results: Path) -> list[dict[str, str]]:
    """Return the rows measured so far."""
    if not results.is_file():
        return []
    with results.open(newline="") as file:
        return list(csv.DictReader(file))


def write_table() -> None:
    """Fill in the table of docs/scale.md with the largest size."""
    heads = {"phase": "phase", "seconds": "seconds", "resident_mb": "peak memory, MB", "written_mb": "more on disk, MB"}
    measured = read(ROOT / "benchmarks" / "scale.csv")
    largest = max((row["documents"] for row in measured), key=int, default="")
    rows = [
        [row[name] if name == "phase" else f"{int(row[name]):,}" for name in heads]
        for row in measured
        if row["documents"] == largest
    ]
    fill(ROOT / "docs" / "scale.md", {"dry-run": table_lines([*heads.values()], rows)})


def main() -> None:
    """Make the data, run the phases, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=int)
    parser.add_argument("pairs", type=int)
    parser.add_argument("--folder", type=Path, help="holds the data, the cache and the run; made if absent, and kept")
    parser.add_argument("--model", type=Path, default=MODEL, help="a sentence-transformers folder")
    parser.add_argument("--steps", type=int, default=300, help="training steps")
    given = parser.parse_args()
    home = given.folder or Path(tempfile.mkdtemp())
    home.mkdir(parents=True, exist_ok=True)
    try:
        dry_run(Size(given.documents, given.pairs), home, given.model, given.steps)
    finally:
        if given.folder is None:
            shutil.rmtree(home)
    write_table()


if __name__ == "__main__":
    main()
