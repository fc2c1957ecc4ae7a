"""What does starting a command cost? CPU seconds and seconds of whole commands, and of the libraries they import.

Each round starts every command once, by turns, with one thread: what imports cost alone, commands that need no model,
and searches whose index is kept, with a query nobody asked before. MiniLM has the first 300 documents only, as the
first search, which fills the cache, counts for nothing.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA, MODEL = (str(ROOT.parent / "shared" / name) for name in ("data/nfcorpus", "models/potion-base-4m"))
FEW = 300


def cost(*arguments: str) -> tuple[float, float]:
    """Run Python with some arguments; return the CPU seconds that the process took, and how long it took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


TABLES, TITLES = ("queries.jsonl", "corpus.jsonl"), ("query-id", "corpus-id", "score")


def few_documents(data: str, folder: Path) -> str:
    """Write the first documents of a BEIR folder to another one."""
    (folder / "qrels").mkdir(parents=True)
    for name, count in (("corpus.jsonl", FEW), ("queries.jsonl", 1)):
        with (Path(data) / name).open(encoding="utf-8") as file:
            (folder / name).write_text("".join(islice(file, count)), encoding="utf-8")
    first = {name: json.loads((folder / name).open(encoding="utf-8").readline())["_id"] for name in TABLES}
    (folder / "qrels" / "test.tsv").write_text(
        "".join("\t".join(row) + "\n" for row in (TITLES, [*first.values(), "1"]))
    )
    return str(folder)


def commands(few: str, number: int) -> dict[str, list[str]]:
    """Return the arguments of each command, by what the table calls it."""
    opera = ["-m", "opera"]
    return {
        "import torch": ["-c", "import torch"],
        "import torch, transformers": ["-c", "import torch, transformers"],
        "import sentence_transformers": ["-c", "import sentence_transformers"],
        "import opera": ["-c", "import opera"],
        "opera --version": [*opera, "--version"],
        "opera search --help": [*opera, "search", "--help"],
        "opera train --help": [*opera, "train", "--help"],
        "import opera.experiments.report": ["-c", "import opera.experiments.report"],
        "opera search, static model, index kept": [*opera, "search", DATA, f"query {number}", "--model", MODEL],
        "opera search, MiniLM, index kept": [*opera, "search", few, f"query {number}", "--model", "minilm"],
        "opera evaluate, static model, ranking kept": [*opera, "evaluate", DATA, "--model", MODEL, "--split", "test"],
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Start every command by turns; return the medians of CPU seconds and of seconds, by command."""
    costs: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["OPERA_CACHE"] = f"{cache}/cache"
        few = few_documents(DATA, Path(cache, "few"))
        for name, arguments in commands(few, rounds).items():
            if "kept" in name:
                cost(*arguments)
        for number in range(rounds):
            for name, arguments in commands(few, number).items():
                costs.setdefault(name, []).append(cost(*arguments))
    medians = {name: map(statistics.median, zip(*values, strict=True)) for name, values in costs.items()}
    return {
        name: dict(zip(("cpu_seconds", "seconds"), (round(value, 2) for value in values), strict=True))
        for name, values in medians.items()
    }
