"""Training and encoding by OPERA, sentence-transformers and FlagEmbedding, on the same work, by turns.

Each library runs in a separate process. The libraries take turns, step by step, over the same texts in the same order.
They use the same lengths, precision, batches, temperature, AdamW and threads. A ratio is the median of the ratios of
the rounds.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import Any

from cells import BATCH, FLAG, LEARNING_RATE, LIBRARY, OPERA, STEPS, TEMPERATURE, TEXTS, Cell
from environment import ROOT, flagembedding
from turns import Worker

HERE = Path(__file__).parent
DATA, STATIC = "../shared/data/nfcorpus", "../shared/models/potion-base-4m"
SCRIPTS = {LIBRARY: "with_sentence_transformers.py", FLAG: "with_flagembedding.py", OPERA: "with_opera.py"}
TOLERANCE = 1e-3
"""Of the loss of the first step, in nats: libraries round it, and FlagEmbedding's products are in another order."""


class Comparison:
    """Compares the libraries.

    Args:
        folder: for models, texts and the environment of FlagEmbedding.
        threads: of each process.
        precision: what ``auto`` means.
        with_flagembedding: whether to make the environment.
    """

    def __init__(self, folder: Path, threads: int, precision: str, with_flagembedding: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.threads, self.precision = folder, threads, precision
        self.flag = flagembedding(folder / "flagembedding") if with_flagembedding else None
        self.models = {"minilm": minilm(folder, True), "minilm-8": minilm(folder, True), "static": ROOT / STATIC}
        self.check_model = minilm(folder, False)

    def measure(self, cell: Cell) -> dict[str, dict[str, Any]]:
        """Let the libraries take turns; return figures by library.

        Figures are ``per_second``, ``gigabytes``, ``precision``, and ``ratio`` of a rival: how many times as fast
        OPERA is.
        """
        self._write_inputs(cell.model)
        workers: dict[str, Worker] = {}
        turns: dict[str, list[dict[str, Any]]] = {}
        try:
            for library in (*cell.rivals, OPERA):
                if library != FLAG or self.flag is not None:
                    workers[library], turns[library] = self._start(cell, library), []
            for _ in range(cell.warm_up + cell.rounds):
                for library, worker in workers.items():
                    turns[library].append(worker.turn())
        finally:
            for worker in workers.values():
                worker.close()
        if cell.without_dropout:
            check_losses({library: rows[0]["loss"] for library, rows in turns.items()})
        texts = len(json.loads((self.folder / f"{cell.model}-texts.json").read_text()))
        units = BATCH[cell.model] if cell.task == "train" else texts
        return figures({library: rows[cell.warm_up :] for library, rows in turns.items()}, units, self._precision(cell))

    def _precision(self, cell: Cell) -> str:
        automatic = "fp32" if cell.model == "static" else self.precision
        return automatic if cell.precision == "auto" else cell.precision

    def _start(self, cell: Cell, library: str) -> Worker:
        python = self.flag if library == FLAG else sys.executable
        job = self._job(cell.model, f"{cell.name}-{library}") | {
            "task": cell.task,
            "model": str(self.check_model if cell.without_dropout else self.models[cell.model]),
            "length": cell.length,
            "precision": self._precision(cell),
        }
        return self._worker(python, SCRIPTS[library], job)

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

    def _write_inputs(self, model: str) -> None:
        """Write the rows that all train on, and the texts that all encode."""
        job = self._job(model, f"rows-{model}") | {"task": "rows", "model": str(self.models[model])}
        job |= {"length": None if model == "static" else 512, "precision": "fp32"}
        worker = self._worker(sys.executable, "with_opera.py", job)
        worker.turn()
        worker.close()


def figures(turns: dict[str, list[dict[str, Any]]], units: int, precision: str) -> dict[str, dict[str, Any]]:
    """Summarise the turns that count: pairs or texts per second, memory, and OPERA's speed against each rival."""
    seconds = {library: [turn["seconds"] for turn in rows] for library, rows in turns.items()}
    summary: dict[str, dict[str, Any]] = {}
    for library, rows in turns.items():
        ratios = [other / opera for other, opera in zip(seconds[library], seconds[OPERA], strict=True)]
        summary[library] = {
            "per_second": round(units / median(seconds[library]), 1),
            "gigabytes": round(rows[-1]["peak_mb"] / 1e3, 2),
            "precision": precision,
            "ratio": median(ratios),
        }
    return summary


def check_losses(losses: dict[str, float]) -> None:
    """Stop if the libraries do not do the same work."""
    if max(losses.values()) - min(losses.values()) > TOLERANCE:
        raise RuntimeError(f"the losses of the first step differ, so this is not the same work: {losses}")


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
