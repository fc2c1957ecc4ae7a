"""What the default command costs on large made-up data: ``opera train``, then a search with the final model.

    OMP_NUM_THREADS=1 python benchmarks/scale.py 100000 1000000
    OMP_NUM_THREADS=1 python benchmarks/scale.py 1000000 10000000 --folder /scratch/opera-scale
    OMP_NUM_THREADS=1 python benchmarks/scale.py 100000 1000000 --processes 2

The numbers are those of documents and training pairs. The model is static, and all settings have their defaults. The
benchmark takes the seconds and the peak memory of each phase of the run: resident memory (``VmHWM``), and the part
that no file stands behind (``RssAnon``), because the system takes mapped pages of files back when it needs them.
``--processes 2`` measures what several processes share instead: ``evaluate``, ``score`` and ``mine``, by one process
and by two, and compares the bytes of their results. A command that is done is not run again. Writes
``benchmarks/scale.csv`` and the tables of docs/scale.md. ``--folder`` holds the data, the cache and the run, and stays.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

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
FIELDS = ("documents", "pairs", "processes", "phase", "seconds", "resident_mb", "anonymous_mb")
RESULTS = ROOT / "benchmarks" / "scale.csv"
REPORT = "OPERA_SCALE_REPORT"
"""The variable that names the file for the figures of a command's phases."""
LONG = 5.0
"""The growth of shorter phases is not shown."""
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


def tables(home: Path) -> list[str]:
    """Return the options of ``opera`` that name the data."""
    pairs = [f"--pairs={split}={home / split}.parquet" for split in ("train", *EVALUATED)]
    return [*pairs, f"--documents={home / 'documents.parquet'}", f"--queries={home / 'queries.parquet'}"]


def shared_commands(home: Path, model: Path, processes: int) -> dict[str, list[str]]:
    """Return the commands whose work several processes share; a process count has its own cache and results."""
    out, base = home / f"by-{processes}", ["--model", str(model)]
    out.mkdir(exist_ok=True)
    return {
        "evaluate": ["evaluate", *tables(home), *base],
        "score": ["score", *tables(home), *base, f"--out={out / 'scores.parquet'}", "--overwrite"],
        "mine": ["mine", *tables(home), *base, f"--out={out / 'mined.tsv'}", "--range=10:50", "--overwrite"],
    }


def run_command(arguments: list[str], cache: Path, processes: int = 1) -> list[dict[str, Any]]:
    """Run ``opera`` in one or more new processes; return the seconds and the peak memory of each phase."""
    report = cache.with_suffix(".json")
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    paths = {"OPERA_CACHE": str(cache), "PYTHONPATH": str(ROOT / "src"), REPORT: str(report)}
    done = subprocess.run(
        [*launcher, __file__, "--opera", *arguments],
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}\n{done.stderr[-3000:]}\nexit status {done.returncode}")
    rows: list[dict[str, Any]] = json.loads(report.read_text())
    return rows


class PhaseWatch:
    """Takes the seconds and the peak memory of the phases of this process."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._anonymous, self._began = 0, time.monotonic()
        Thread(target=self._poll, daemon=True).start()

    def _poll(self) -> None:
        while True:
            self._anonymous = max(self._anonymous, memory("RssAnon"))
            time.sleep(POLL)

    def end(self, phase: str) -> None:
        """Add a row for what happened since the end of the previous phase."""
        now = time.monotonic()
        peaks = {"resident_mb": memory("VmHWM"), "anonymous_mb": max(self._anonymous, memory("RssAnon"))}
        self.rows.append({"phase": phase, "seconds": now - self._began, **peaks})
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        self._anonymous, self._began = 0, now


def memory(field: str) -> int:
    """Return megabytes of this process, by a field of ``/proc/self/status``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 // 10**6


def run_opera(arguments: list[str]) -> None:
    """Run ``opera`` in this process, and write what its phases took to the report."""
    watch = PhaseWatch()
    from opera.cli import main
    from opera.run.session import Session

    original = Session.phase

    @contextmanager
    def measured(session: Session, name: str, description: str | None = None) -> Iterator[None]:
        if not watch.rows:
            watch.end("load")
        with original(session, name, description):
            yield
        watch.end(name)

    Session.phase = measured  # type: ignore[method-assign]
    sys.argv = ["opera", *arguments]
    try:
        main()
    finally:
        watch.end("write" if watch.rows else arguments[0])
        if os.environ.get("RANK", "0") == "0":
            Path(os.environ[REPORT]).write_text(json.dumps(watch.rows))


def search_seconds(home: Path) -> list[dict[str, Any]]:
    """Return the seconds of the first and of a later answer, after the imports; the vectors are in the page cache."""
    code = f"""
import os, sys, time
os.environ["OPERA_CACHE"] = {str(home / "cache")!r}
sys.path.insert(0, {str(ROOT / "src")!r})
import opera, torch, sentence_transformers
from opera.retrieval.search import CorpusSearch
from opera.data.loading import named_source
def answer(query):
    start = time.monotonic(); search.find(query, 10); return time.monotonic() - start
for _ in range(2):
    start = time.monotonic()
    search = CorpusSearch(named_source({str(home / "run")!r}))
    first = time.monotonic() - start + answer("bababa dododo")
    later = sorted(answer(f"kikiki lululu {{number}}") for number in range(5))[2]
print(first, later)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    first, later = map(float, done.stdout.split()[-2:])
    return [{"phase": "search, first answer", "seconds": first}, {"phase": "search, later answer", "seconds": later}]


def measure(size: Size, home: Path, model: Path, processes: int) -> None:
    """Run what has no rows yet, and append its rows."""
    if not (home / "test.parquet").is_file():
        write_data(home, size)
    run = home / "run"
    train = ["train", *tables(home), "--model", str(model), f"--out={run}"]
    if processes == 1:
        if not has(size, 1, "train"):
            add(size, 1, run_command([*train, "--overwrite"], home / "cache"))
        if not has(size, 1, "search, first answer"):
            add(size, 1, search_seconds(home))
        return
    for count in (1, processes):
        for name, arguments in shared_commands(home, model, count).items():
            if not has(size, count, name):
                add(size, count, run_command(arguments, home / f"cache-{count}", count))
    for name in ("scores.parquet", "mined.tsv"):
        one, more = ((home / f"by-{count}" / name).read_bytes() for count in (1, processes))
        if one != more:
            sys.exit(f"{name}: {processes} processes write other bytes than one")


def has(size: Size, processes: int, phase: str) -> bool:
    """Whether a phase was measured."""
    key = (str(size.documents), str(size.pairs), str(processes), phase)
    return any(tuple(row[name] for name in FIELDS[:4]) == key for row in read())


def add(size: Size, processes: int, rows: list[dict[str, Any]]) -> None:
    """Append rows to the stored ones; equal phases of a command count as one."""
    phases: dict[str, dict[str, Any]] = {}
    for row in rows:
        peak = phases.setdefault(row["phase"], {**row, "seconds": 0.0})
        peak["seconds"] += row["seconds"]
        peak.update({name: max(peak[name], row[name]) for name in FIELDS[5:] if name in row})
    stored = read()
    key = dict(zip(FIELDS, map(str, (size.documents, size.pairs, processes)), strict=False))
    for phase, row in phases.items():
        stored.append({**key, **row, "phase": phase, "seconds": f"{row['seconds']:.2f}"})
        print(stored[-1], flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(stored)


def read() -> list[dict[str, str]]:
    """Return the rows measured so far."""
    if not RESULTS.is_file():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def write_tables() -> None:
    """Fill in the tables of docs/scale.md."""
    by_phase: dict[str, dict[int, dict[str, str]]] = {}
    shared: dict[str, dict[int, float]] = {}
    for row in read():
        if row["phase"] in ("evaluate", "score", "mine"):
            shared.setdefault(row["phase"], {})[int(row["processes"])] = float(row["seconds"])
        else:
            by_phase.setdefault(row["phase"], {})[int(row["documents"])] = row
    sizes = sorted({documents for rows in by_phase.values() for documents in rows})
    heads = ["phase", *(f"{size:,} documents" for size in sizes), "growth against data", "peak memory, MB"]
    lines = []
    for phase, rows in by_phase.items():
        seconds = [f"{float(rows[size]['seconds']):,.1f}" if size in rows else "" for size in sizes]
        ends = sorted(rows)
        growth = ""
        if len(ends) > 1 and float(rows[ends[-1]]["seconds"]) >= LONG:
            ratio = float(rows[ends[-1]]["seconds"]) / float(rows[ends[0]]["seconds"])
            growth = f"{ratio * ends[0] / ends[-1]:.2f}"
        lines.append([phase, *seconds, growth, rows[ends[-1]]["anonymous_mb"]])
    totals = [
        f"{sum(float(rows[size]['seconds']) for rows in by_phase.values() if size in rows):,.0f}" for size in sizes
    ]
    lines.append(["all", *totals, "", ""])
    processes = [
        [phase, *(f"{seconds:.1f}" for _, seconds in sorted(counts.items())), f"{counts[1] / counts[2]:.2f}"]
        for phase, counts in shared.items()
        if {1, 2} <= counts.keys()
    ]
    fill(
        ROOT / "docs" / "scale.md",
        {
            "scale": table_lines(heads, lines),
            "processes": table_lines(["command", "one process, s", "two, s", "ratio"], processes),
        },
    )


def main() -> None:
    """Make the data, run the phases, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=int)
    parser.add_argument("pairs", type=int)
    parser.add_argument("--folder", type=Path, help="holds the data, the cache and the run; made if absent, and kept")
    parser.add_argument("--model", type=Path, default=MODEL, help="a sentence-transformers folder")
    parser.add_argument("--processes", type=int, default=1, help="measure what so many processes share")
    options = parser.parse_args()
    home = options.folder or Path(tempfile.mkdtemp())
    home.mkdir(parents=True, exist_ok=True)
    try:
        measure(Size(options.documents, options.pairs), home, options.model, options.processes)
    finally:
        if options.folder is None:
            shutil.rmtree(home)
    write_tables()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--opera"]:
        run_opera(sys.argv[2:])
    else:
        main()
