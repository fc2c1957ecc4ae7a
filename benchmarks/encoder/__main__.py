"""Training and encoding beside sentence-transformers and FlagEmbedding, on the same work, by turns.

    make bench-encoder

Every library works in a process of its own. They take turns, step by step, over the same texts in the same order, with
the same lengths, precision, batches, temperature, AdamW and threads; another process measures the machine's
matrix-product peak in between. Figures are medians over the rounds, ratios medians of the ratios of each round. A cell
that is done is kept in ``.benchmark/`` until a source file changes, so a stopped benchmark continues; ``--fresh``
measures everything again. Writes benchmarks/encoder.json and tables of docs/benchmarks.md if it measured every cell.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cells import BATCH, CELLS, DP, FLAG, LEARNING_RATE, LIBRARY, OPERA, QUICK, STEPS, TEMPERATURE, TEXTS, Cell
from environment import ROOT, VERSION, flagembedding
from tables import processor, profile_table, tables
from turns import Worker

HERE = Path(__file__).parent
sys.path.insert(0, str(ROOT / "tools"))
from opera.retrieval.device import resolve_precision  # noqa: E402
from page import fill, need  # noqa: E402

DATA, STATIC = "../shared/data/nfcorpus", "../shared/models/potion-base-4m"
SCRIPTS = {LIBRARY: "with_sentence_transformers.py", FLAG: "with_flagembedding.py"}
PEAK = "matrix products"
PROFILED = [("train", 128), ("train", 512), ("encode", 512)]


class Benchmark:
    """One run.

    Args:
        folder: for models, rows, environments, and the cells that are done.
        threads: of each process.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.code = digest()
        self.flag = flagembedding(folder / "flagembedding")
        self.models = {"minilm": minilm(folder, True), "minilm-8": minilm(folder, True), "static": ROOT / STATIC}
        self.check_model = minilm(folder, False)
        self.inputs = {name: self._rows(name) for name in self.models}

    def measure(self, cell: Cell) -> dict[str, Any]:
        """Measure a cell, or return what an earlier run measured."""
        kept = self.folder / "cells" / f"{cell.name}.json"
        key = [self.code, self.threads, cell.rounds, list(cell.ways), self.flag is not None]
        if kept.is_file() and (earlier := json.loads(kept.read_text()))["key"] == key:
            return dict(earlier["measured"])
        ways = [way for way in cell.ways if way != FLAG or self.flag is not None]
        load = os.getloadavg()[0]
        workers: dict[str, Worker] = {}
        turns: dict[str, list[dict[str, Any]]] = {}
        try:
            for way in (*ways, PEAK):
                workers[way] = self._start(cell, way)
                turns[way] = []
            for _ in range(cell.warm_up + cell.rounds):
                for way, worker in workers.items():
                    turns[way].append(worker.turn())
        finally:
            for worker in workers.values():
                worker.close()
        facts = {way: worker.facts for way, worker in workers.items()}
        measured = {
            "cell": cell.as_dict(),
            "warm_up": cell.warm_up,
            "title": cell.title,
            "units": len(json.loads((self.folder / f"{cell.model}-texts.json").read_text())),
            "load_before": load,
            "facts": facts,
            "turns": turns,
        }
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps({"key": key, "measured": measured}))
        return measured

    def profile(self, task: str, length: int) -> list[list[Any]]:
        """Return the operations of an OPERA step, or of encoding, that take most time: name, share, calls."""
        worker = self._start(Cell(task, "minilm", length, "bf16", 1), OPERA, "profiled.py")
        shares: list[list[Any]] = worker.turn()["shares"]
        worker.close()
        return shares

    def _start(self, cell: Cell, way: str, script: str | None = None) -> Worker:
        script = script or ("products.py" if way == PEAK else SCRIPTS.get(way, "with_opera.py"))
        python = self.flag if way == FLAG else sys.executable
        job = self._job(cell.model, f"{cell.name}-{way.replace(', ', '-')}") | {
            "task": cell.task,
            "model": str(self.check_model if cell.without_dropout else self.models[cell.model]),
            "length": cell.length,
            "precision": cell.precision,
            "method": "dp" if way == DP else "ft",
        }
        return self._worker(python, script, job)

    def _job(self, model: str, name: str) -> dict[str, Any]:
        folder = self.folder / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return {
            "folder": str(folder),
            "data": str(ROOT / DATA),
            "rows": str(self.folder / f"{model}-rows.jsonl"),
            "texts": str(self.folder / f"{model}-texts.json"),
            "texts_count": TEXTS[model],
            "steps": STEPS[model],
            "batch_size": BATCH[model],
            "temperature": TEMPERATURE,
            "learning_rate": LEARNING_RATE,
        }

    def _worker(self, python: Any, script: str, job: dict[str, Any]) -> Worker:
        environment = {
            "OMP_NUM_THREADS": str(self.threads),
            "OPERA_CACHE": str(self.folder / "cache"),
            "HF_HUB_OFFLINE": "1",
        }
        return Worker([python, HERE / script], job, Path(job["folder"]) / "log.txt", environment)

    def _rows(self, model: str) -> dict[str, Any]:
        """Write the rows that all train on, and the texts that all encode; return the counts of their tokens."""
        kept = self.folder / f"{model}-inputs.json"
        if kept.is_file() and (earlier := json.loads(kept.read_text()))["code"] == self.code:
            return dict(earlier)
        length = None if model == "static" else 512
        job = self._job(model, f"rows-{model}") | {"task": "rows", "model": str(self.models[model])}
        worker = self._worker(sys.executable, "with_opera.py", job | {"length": length, "precision": "fp32"})
        counted = worker.turn()["lengths"]
        worker.close()
        shape = {name: worker.facts.get(name) for name in ("parameters", "layers", "width")}
        kept.write_text(json.dumps({"code": self.code, "shape": shape, **counted}))
        return {"shape": shape, **counted}


def minilm(folder: Path, dropout: bool) -> Path:
    """Copy MiniLM with a limit of 512 tokens, the most it has positions for; its own limit is half of that."""
    from opera.retrieval.locate import locate_model

    copy = folder / ("minilm" if dropout else "minilm-without-dropout")
    if not copy.is_dir():
        shutil.copytree(locate_model("minilm"), copy)
        change(copy / "sentence_bert_config.json", max_seq_length=512)
        if not dropout:
            change(copy / "config.json", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return copy


def change(path: Path, **values: Any) -> None:
    """Change values of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def digest() -> str:
    """Hash the sources, so that a cell of other code is not taken for this one's."""
    paths = sorted([*(ROOT / "src").rglob("*.py"), *HERE.glob("*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def main() -> None:
    """Measure the cells, write the JSON, fill the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few turns of few cells, to see whether it works")
    parser.add_argument("--fresh", action="store_true", help="measure again what is done")
    parser.add_argument("--only", default="", help="cells whose name contains this; the tables stay as they are")
    parser.add_argument("--profile", action="store_true", help="print where OPERA's time goes")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each library")
    parser.add_argument("--folder", type=Path, default=ROOT / ".benchmark", help="for what is kept")
    given = parser.parse_args()
    need(DATA, STATIC)
    if given.fresh:
        shutil.rmtree(given.folder / "cells", ignore_errors=True)
    given.folder.mkdir(parents=True, exist_ok=True)
    benchmark = Benchmark(given.folder.resolve(), given.threads)
    if given.profile:
        profiles = {(task, length): benchmark.profile(task, length) for task, length in PROFILED}
        print(profile_table(profiles))
        return
    cells = [cell for cell in (QUICK if given.quick else CELLS) if given.only in cell.name]
    if resolve_precision("auto", "cpu", True) == "fp32":
        print("this processor has no bf16: its cells are left out, and the page stays as it is")
        cells = [cell for cell in cells if cell.precision == "fp32"]
    measured = []
    for cell in cells:
        start = time.perf_counter()
        measured.append(benchmark.measure(cell))
        print(f"{cell.name}: {time.perf_counter() - start:.0f} s", flush=True)
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "threads": given.threads,
        "versions": {name: version(name) for name in ("torch", "transformers", "sentence-transformers")}
        | ({"FlagEmbedding": VERSION} if benchmark.flag else {}),
    }
    summary, filled = tables(measured, benchmark.inputs, about)
    for text in filled.values():
        print(text)
    if cells == CELLS:
        (ROOT / "benchmarks" / "encoder.json").write_text(json.dumps(summary, indent=2) + "\n")
        fill(ROOT / "docs" / "benchmarks.md", filled)


if __name__ == "__main__":
    main()
