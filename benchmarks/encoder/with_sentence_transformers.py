"""The work of a job, by sentence-transformers: its trainer, or ``encode``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from stopwatch import Stopwatch
from torch.utils.data import SequentialSampler
from turns import Turns, job


class InOrder(DefaultBatchSampler):  # type: ignore[misc]
    """The library's batch sampler, without shuffling."""

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **unused: Any) -> None:
        super().__init__(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last)


def train(work: dict[str, Any], turns: Turns) -> None:
    """Train on the rows of the job, in their order."""
    rows = [json.loads(line) for line in Path(work["rows"]).read_text().splitlines()]
    dataset = Dataset.from_dict(
        {
            "anchor": [row["query"] for row in rows],
            "positive": [row["pos"][0] for row in rows],
            "negative": [row["neg"][0] for row in rows],
        }
    )
    model = opened(work)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=work["folder"],
        max_steps=work["steps"],
        per_device_train_batch_size=work["batch_size"],
        learning_rate=work["learning_rate"],
        batch_sampler=InOrder,
        bf16=work["precision"] == "bf16",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    loss = MultipleNegativesRankingLoss(model, scale=1 / work["temperature"])
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=dataset, loss=loss, callbacks=[Stopwatch(turns)]
    ).train()


def encode(work: dict[str, Any], turns: Turns) -> None:
    """Encode the texts of the job; in bf16 by the faster of the model's own bfloat16 and autocast."""
    texts = json.loads(Path(work["texts"]).read_text())
    ways = {"fp32": ["fp32"], "bf16": ["model in bfloat16", "autocast"]}[work["precision"]]
    models = {way: opened(work) for way in ways}

    def encoded(way: str, some: list[str]) -> float:
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
            models[way].encode(some, batch_size=32)
        return time.perf_counter() - start

    if "model in bfloat16" in models:
        models["model in bfloat16"].to(torch.bfloat16)
    for way in ways:
        encoded(way, texts[:32])
    seconds = {way: encoded(way, texts[:64]) for way in ways}
    best = min(seconds, key=seconds.__getitem__)
    for way in set(ways) - {best}:
        del models[way]
    turns.ready(way=best)
    while True:
        encoded(best, texts)
        turns.done()


def opened(work: dict[str, Any]) -> SentenceTransformer:
    """Open the model of the job with its length; a static model reads whole texts."""
    model = SentenceTransformer(work["model"], device="cpu")
    if work["length"] is not None:
        model.max_seq_length = work["length"]
    return model


if __name__ == "__main__":
    {"train": train, "encode": encode}[job()["task"]](job(), Turns())
