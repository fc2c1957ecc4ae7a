"""The work of a job, by OPERA: what ``opera train`` trains with, or its encoder. Also the rows that all train on."""

from __future__ import annotations

import opera  # noqa: F401 (before torch, which reads how threads are to wait when it is loaded)

# isort: split

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from stopwatch import Stopwatch
from turns import Turns, job

from opera.config.recipe import make_recipe
from opera.data import load_all, load_data
from opera.retrieval.encoder import open_encoder
from opera.run.session import Session, new_record
from opera.run.steps import fit
from opera.run_folder.folder import RunWriter
from opera.training.build import build_training_set
from opera.training.prepare import Prepared, load_and_check
from opera.training.trainer import make_sampler


def prepared(work: dict[str, Any]) -> Prepared:
    """Prepare the training of a job. Known positives are not masked, since other libraries do not know them."""
    lengths = {} if work["length"] is None else {"max_query_length": 128, "max_passage_length": work["length"]}
    recipe = make_recipe(
        {
            "method": "ft",
            "max_steps": work["steps"],
            "per_device_train_batch_size": work["batch_size"],
            "learning_rate": work["learning_rate"],
            "warmup_ratio": 0.0,
            "temperature": work["temperature"],
            "precision": work["precision"],
            "negatives": "random",
            "mask_known_positives": False,
            "guard": False,
            "logging_steps": 1,
            **lengths,
        }
    )
    return load_and_check(load_all([work["data"]]), work["model"], recipe)


def train(work: dict[str, Any], turns: Turns) -> None:
    """Train as ``opera train`` does, with its own draws, which must be the rows of the job."""
    ready = prepared(work)
    run = RunWriter(Path(work["folder"]))
    watch = [Checked(turns, work)]
    session = Session(ready, run, time.perf_counter(), False, watch, new_record(ready, run.path))
    fit(session, ready.data.with_splits, run, "train", "training")


class Checked(Stopwatch):
    """Compares the pairs of the first step with the rows that the other libraries train on."""

    def __init__(self, turns: Turns, work: dict[str, Any]) -> None:
        super().__init__(turns)
        with Path(work["rows"]).open() as rows:
            self._pairs = [json.loads(next(rows))["pair"] for _ in range(work["batch_size"])]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compare."""
        sampler = kwargs["train_dataloader"].batch_sampler
        if state.global_step == 1 and sampler.sampled[0].tolist() != self._pairs:
            raise RuntimeError("the draws differ from the rows that were written")


def encode(work: dict[str, Any], turns: Turns) -> None:
    """Encode the first documents of the corpus, each time with an empty cache."""
    documents = Documents(work)
    turns.ready()
    while True:
        documents.encode()
        turns.done()


class Documents:
    """The first documents of the corpus, and an encoder that is warm."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._data, self._folder = load_data(work["data"]), work["folder"]
        self._count = len(json.loads(Path(work["texts"]).read_text()))
        self._encoder = open_encoder(work["model"], work["precision"], max_passage_length=work["length"])
        self.encode(32)

    def encode(self, count: int | None = None) -> None:
        """Encode them, or fewer, with an empty cache; tokens and embeddings are written to it."""
        corpus = self._data.corpus.select(np.arange(count or self._count))
        part = replace(self._data, fingerprint=f"{self._data.fingerprint}/{count}", corpus=corpus)
        with TemporaryDirectory(dir=self._folder) as cache:
            os.environ["OPERA_CACHE"] = cache
            self._encoder.encode_corpus(part)


def write_rows(work: dict[str, Any], turns: Turns) -> None:
    """Write the pairs that OPERA draws as rows of FlagEmbedding's format, in their order."""
    ready = prepared(work)
    built = build_training_set(ready)
    sampler = make_sampler(built, ready.recipe)
    sampler.lag = work["steps"]  # nothing is observed
    with Path(work["rows"]).open("w") as file:
        for step in range(work["steps"]):
            drawn = sampler.sample_step(step)
            queries = built.data.queries.texts(built.train.query_rows[built.pairs.pair_query[drawn.pair_ids]], "text")
            positives, negatives = (built.data.corpus.texts(rows, "title_text") for rows in drawn.doc_rows.T)
            for pair, query, pos, neg in zip(drawn.pair_ids.tolist(), queries, positives, negatives, strict=True):
                file.write(json.dumps({"pair": pair, "query": query, "pos": [pos], "neg": [neg]}) + "\n")
    texts = built.data.corpus.texts(slice(0, work["texts_count"] or len(built.data.corpus)), "title_text")
    Path(work["texts"]).write_text(json.dumps(texts))
    turns.ready()
    turns.done()


if __name__ == "__main__":
    {"train": train, "encode": encode, "rows": write_rows}[job()["task"]](job(), Turns())
