"""Train a method in a world, and measure every share λ between the pretrained and the fine-tuned weights.

For the static model only. Its embedding is a mean of token vectors, so the raw embedding by interpolated weights is the
interpolation of the raw embeddings: each training is encoded once, whatever the number of shares.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.config.recipe import make_recipe
from opera.core.rng import generator
from opera.data import RetrievalData
from opera.data.splits import Future, draw_missing_splits, seen_share
from opera.retrieval.measures import parse_measures, per_query
from opera.retrieval.search import exact_search
from opera.runs.folder import RunWriter
from opera.training.guard.rule import Kind, choose_share
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import load_and_check
from worlds import MODEL

SHARES = tuple(n / 8 for n in range(9))
MEASURES = ("nDCG@10", "R@20")
MOST_QUERIES = 2000
"""Queries measured per split; more are drawn from at random, the same for every method."""
DEPTH = 20

Embeddings = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Raw embeddings of all queries and of all documents."""


@dataclass(frozen=True)
class Curves:
    """One training, measured at every share.

    Attributes:
        dev: float64 ``[shares, measures, dev queries]``.
        test: float64 ``[shares, measures, test queries]``.
        dev_seen: share of dev's relevant pairs whose document train names.
        test_seen: the same of test.
        queries: training queries.
        steps: optimizer steps.
    """

    dev: NDArray[np.float64]
    test: NDArray[np.float64]
    dev_seen: float
    test_seen: float
    queries: int
    steps: int

    def write(self, path: Path) -> None:
        """Write an ``.npz`` file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            np.savez(file, **vars(self))
        temporary.rename(path)

    @classmethod
    def read(cls, path: Path) -> Curves:
        """Read what :meth:`write` wrote."""
        with np.load(path) as arrays:
            values: dict[str, Any] = {name: arrays[name] for name in arrays.files}
        numbers = {name: values[name].item() for name in ("dev_seen", "test_seen", "queries", "steps")}
        return cls(dev=values["dev"], test=values["test"], **numbers)


def choose(dev: Mapping[float, NDArray[np.float64]], seen: float, static: bool = True) -> float:
    """The share that the guard chooses by queries of one kind."""
    return choose_share(dev, [Kind(np.ones(len(dev[0.0]), dtype=bool), seen)], static)


def measure_curves(
    world: RetrievalData, method: str, settings: Mapping[str, Any], seed: int, future: Future = "like-test"
) -> Curves:
    """Train on train without a dev split, and measure dev and test at every share."""
    data = draw_missing_splits(world, seed=seed, test_fraction=0.1, needs_dev=True, future=future)
    queries = data.training_split().n_queries
    fixed = {"seed": seed, "logging_steps": 1000, "save_steps": 10**6}
    recipe = make_recipe({"method": method, **fixed, **settings})
    prepared = load_and_check(data, MODEL, recipe)
    pretrained = embed(prepared.model.trained, data)
    training_set = build_training_set(prepared)
    folder = Path(tempfile.mkdtemp())
    try:
        train(
            prepared.model.trained,
            training_set,
            prepared.recipe.make_method(training_set.pairs, training_set.scores, 1),
            prepared.settings,
            RunWriter(folder),
        )
    finally:
        shutil.rmtree(folder)
    trained = embed(prepared.model.trained, data)
    return Curves(
        dev=curve(pretrained, trained, data, "dev"),
        test=curve(pretrained, trained, data, "test"),
        dev_seen=seen_share(data, "dev"),
        test_seen=seen_share(data, "test"),
        queries=queries,
        steps=prepared.settings.max_steps,
    )


def embed(model: SentenceTransformer, data: RetrievalData) -> Embeddings:
    """Embed all queries and documents, without normalizing."""
    both = data.queries.texts(slice(0, len(data.queries)), "text"), data.corpus.texts(slice(0, len(data.corpus)))
    with torch.no_grad():
        raw = [
            np.concatenate(
                [
                    model[0](model[0].preprocess(texts[i : i + 2048]))["sentence_embedding"].numpy()
                    for i in range(0, len(texts), 2048)
                ]
            )
            for texts in both
        ]
    return raw[0], raw[1]


def curve(pretrained: Embeddings, trained: Embeddings, data: RetrievalData, split: str) -> NDArray[np.float64]:
    """Measure a split at every share: float64 ``[shares, measures, queries]``."""
    qrels = data.judged_qrels(split)
    if qrels.n_queries > MOST_QUERIES:
        chosen = generator(0, "study.queries").permutation(qrels.n_queries)[:MOST_QUERIES]
        qrels = qrels.select_queries(np.isin(np.arange(qrels.n_queries), chosen))
    values = []
    for share in SHARES:
        queries, documents = (
            unit((1 - share) * before + share * after) for before, after in zip(pretrained, trained, strict=True)
        )
        measured = per_query(
            exact_search(queries[qrels.query_rows], documents, data.corpus, DEPTH), qrels, parse_measures(MEASURES)
        )
        values.append(np.stack([measured[measure] for measure in MEASURES]))
    return np.stack(values)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
