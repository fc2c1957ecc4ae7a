"""Compare OPERA's speed with other libraries, and with the goals in ``goals.py``.

    make bench        # the goals, at most 15 minutes on two slow idle cores
    make bench-all    # more settings and rounds, also FlagEmbedding in a separate environment

Each program runs in a separate process. The programs take turns, so other work on the machine slows all of them.
Prints one table, keeps the results in ``benchmarks/results/KIND.json``, and fills docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import load
import search
import startup
from goals import ROOT, Result, fill_page, goal_table, keep

sys.path.append(str(Path(__file__).parent / "encoder"))
from cells import CELLS, IN_FP32, OPERA, WITH_GOALS
from compare import DATA, STATIC, Comparison

from opera.core.processor import processor_defaults, processor_kind
from page import need

LIBRARIES = ("torch", "numpy", "transformers", "sentence-transformers", "faiss-cpu", "duckdb")
ENGINES = {"faiss": "FAISS flat", "semantic_search": "semantic_search"}
STARTS = {
    "import opera",
    "opera train --help",
    "opera search, static model, index kept",
    "import sentence_transformers",
}


def train_and_encode(threads: int, everything: bool) -> Iterator[Result]:
    """Compare training and encoding."""
    need(DATA, STATIC)
    precision = processor_defaults().precision
    comparison = Comparison(ROOT / ".benchmark", threads, precision, everything)
    more = IN_FP32 if precision == "bf16" else []
    for cell in [*CELLS, *more] if everything else WITH_GOALS:
        measured = comparison.measure(cell)
        for rival in cell.rivals:
            if rival in measured and not cell.without_dropout:
                details = {OPERA: measured[OPERA], rival: measured[rival]}
                yield Result(f"{cell.title}, against {rival}", measured[rival]["ratio"], "×", details)


def search_vectors(threads: int, everything: bool) -> Iterator[Result]:
    """Compare exact search."""
    for size, rounds in ((100_000, 3), (1_000_000, 3 if everything else 1)):
        for measured in search.measure(size, threads, rounds):
            for engine, title in ENGINES.items():
                name = f"search, {size:,} documents, k = {measured['depth']}, against {title}"
                details = {searcher: measured[searcher] for searcher in ("opera", engine)}
                yield Result(name, measured[engine]["ratio"], "×", details)


def sample(threads: int, everything: bool) -> Iterator[Result]:
    """Time steps of the sampler on one core."""
    sizes = [140_085, *([741_436, 10_000_000] if everything else [])]
    command = [sys.executable, str(ROOT / "benchmarks" / "sampler.py"), *map(str, sizes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        measured = json.loads(line)
        for caches in ("warm", "cold"):
            name = f"step of the sampler of dp, one core, {measured['pairs']:,} pairs, {caches} caches"
            yield Result(name, measured[f"{caches}_ms"], "ms", {"direct_ms": measured["direct_ms"]})


def load_rows(threads: int, everything: bool) -> Iterator[Result]:
    """Compare loading a table."""
    measured = load.measure(300_000, 5 if everything else 3)
    yield Result("loading 300,000 rows, time of OPERA / time of DuckDB", measured["ratio"], "×", measured)


def start_commands(threads: int, everything: bool) -> Iterator[Result]:
    """Time the start of commands, in CPU seconds."""
    for name, measured in startup.measure(3).items() if everything else ():
        if name in STARTS:
            yield Result(f"start of `{name}`", measured["cpu_seconds"], "s", measured)


PARTS: dict[str, Callable[[int, bool], Iterator[Result]]] = {
    "encoder": train_and_encode,
    "search": search_vectors,
    "sampler": sample,
    "load": load_rows,
    "startup": start_commands,
}


def processor_name() -> str:
    """Name the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.machine()])[0]


def main() -> None:
    """Measure, keep the results, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="more settings and rounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each program")
    options = parser.parse_args()
    kind, results = processor_kind(), []
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    circumstances: dict[str, Any] = {
        "processor": processor_name(),
        "date": time.strftime("%Y-%m-%d"),
        "threads": options.threads,
        "command": "make bench-all" if options.all else "make bench",
        "versions": {name: version(name) for name in LIBRARIES},
    }
    for part in options.only:
        start, load_before = time.perf_counter(), round(os.getloadavg()[0], 1)
        measured = list(PARTS[part](options.threads, options.all))
        keep(kind, measured, circumstances | {"load_before": load_before})
        results += measured
        print(f"{part}: {time.perf_counter() - start:.0f} s, load before: {load_before}", file=sys.stderr, flush=True)
    fill_page()
    print(f"{circumstances['processor']} ({kind}), {options.threads} threads\n\n{goal_table(results)}")


if __name__ == "__main__":
    main()
