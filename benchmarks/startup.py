"""What does starting a command cost? CPU seconds and seconds of whole commands, and of the libraries they import.

    python benchmarks/startup.py [--data ../shared/data/nfcorpus] [--model ../shared/models/potion-base-4m] [--rounds 5]

Each round starts every command once, by turns, with one thread: what imports cost alone, commands that need no model,
and searches whose index is kept, with a query nobody asked before. MiniLM has the first 300 documents only, as the
first search, which fills the cache, counts for nothing. Writes benchmarks/startup.json, and prints a
table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from page import table_lines  # noqa: E402

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


def commands(data: str, few: str, model: str, number: int) -> dict[str, list[str]]:
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
        "opera search, static model, index kept": [*opera, "search", data, f"query {number}", "--model", model],
        "opera search, MiniLM, index kept": [*opera, "search", few, f"query {number}", "--model", "minilm"],
        "opera evaluate, static model, ranking kept": [*opera, "evaluate", data, "--model", model, "--split", "test"],
    }


def main() -> None:
    """Measure, and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data/nfcorpus"))
    parser.add_argument("--model", default=str(ROOT.parent / "shared/models/potion-base-4m"))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    figures: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["OPERA_CACHE"] = f"{cache}/cache"
        few = few_documents(given.data, Path(cache, "few"))
        for name, arguments in commands(given.data, few, given.model, given.rounds).items():
            if "kept" in name:
                cost(*arguments)
        for number in range(given.rounds):
            for name, arguments in commands(given.data, few, given.model, number).items():
                figures.setdefault(name, []).append(cost(*arguments))
                print(name, *(f"{seconds:.2f}" for seconds in figures[name][-1]), flush=True)
    medians = {
        name: {"cpu_seconds": round(statistics.median(cpu), 3), "seconds": round(statistics.median(wall), 3)}
        for name, (cpu, wall) in ((name, zip(*values, strict=True)) for name, values in figures.items())
    }
    about = {"python": platform.python_version(), "rounds": given.rounds, "load": round(os.getloadavg()[0], 1)}
    path = ROOT / "benchmarks" / "startup.json"
    path.write_text(json.dumps({"about": about, "commands": medians}, indent=1) + "\n", encoding="utf-8")
    rows = [[name, f"{of['cpu_seconds']:.2f}", f"{of['seconds']:.2f}"] for name, of in medians.items()]
    print(table_lines(["", "CPU seconds", "seconds"], rows))


if __name__ == "__main__":
    main()
