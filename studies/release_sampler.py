"""The sampler of the authors' release, loaded from a folder and driven on pairs and scores of ours."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.data.pairs import TrainingPairs

PACKAGE = "authors_release"
"""Its own name is opera too."""


def load_release(folder: Path) -> Callable[..., Any]:
    """Load the release's dataset class of dp from its folder ``projects/opera``.

    Its logging service and the reading of its own files are replaced by nothing; everything else is its code.
    """
    if PACKAGE in sys.modules:
        return sys.modules[f"{PACKAGE}.data.sampler"].OperaQueryDataset
    for name in ("OPERA_RAW_DATA_DIR", "OPERA_WORK_ROOT"):
        os.environ.setdefault(name, "unused")
    silent, own_files = ModuleType("wandb"), ModuleType(f"{PACKAGE}.data.utils")
    silent.log = lambda *values, **more: None  # type: ignore[attr-defined]
    own_files.load_train_data = lambda config: config.train_data  # type: ignore[attr-defined]
    package, data = ModuleType(PACKAGE), ModuleType(f"{PACKAGE}.data")
    package.__path__, data.__path__ = [str(folder / "opera")], [str(folder / "opera" / "data")]
    modules = {"wandb": silent, PACKAGE: package, f"{PACKAGE}.data": data, f"{PACKAGE}.data.utils": own_files}
    sys.modules.update(modules)
    return importlib.import_module(f"{PACKAGE}.data.sampler").OperaQueryDataset


@dataclass(frozen=True)
class ReleaseState:
    """What the release's sampler holds at a step.

    Attributes:
        pool_size: n₀.
        top: bool ``[n]``, its top queries.
        in_pool: float64 ``[n]``, the share of the redraws in which each query was in the pool.
        threshold: T.
        document: float64 ``[N]``, P(d|q).
    """

    pool_size: int
    top: NDArray[np.bool_]
    in_pool: NDArray[np.float64]
    threshold: float
    document: NDArray[np.float64]


class ReleaseSampler:
    """Drives the release's dataset class as its trainer does.

    Args:
        dataset_class: from :func:`load_release`.
        pairs: the training pairs.
        similarity: float32 ``[N]``, of the pretrained model.
        max_steps: steps of the training.
        seed: its seed.
    """

    def __init__(
        self, dataset_class: Callable[..., Any], pairs: TrainingPairs, similarity: FloatArray, max_steps: int, seed: int
    ) -> None:
        self.pairs, self._left = pairs, []  # type: tuple[TrainingPairs, list[int]]
        rows = []
        for query in range(pairs.n_queries):
            ids = range(int(pairs.query_offsets[query]), int(pairs.query_offsets[query + 1]))
            rows.append(
                {
                    "query_id": query,
                    "query_text": "",
                    "doc_text": ["" for _ in ids],
                    "pos_pair_id": list(ids),
                    "similarity": [float(similarity[pair]) for pair in ids],
                }
            )
        negatives = {query: {"doc_text": [""]} for query in range(pairs.n_queries)}
        with contextlib.redirect_stdout(io.StringIO()):
            self._dataset = dataset_class(_texts(), None, _config((rows, negatives), max_steps, seed))
        self._sampler = self._dataset.sampler

    def draw(self, step: int, count: int) -> NDArray[np.int64]:
        """Return the next batch of pair ids, int64 ``[count]``; a pass that has fewer left is dropped."""
        self._dataset.set_global_step(max(0, step - 1))  # its trainer tells it the step after the forward pass
        if len(self._left) < count:
            iter(self._sampler)
            self._left = list(self._sampler.sample_indices)
        batch, self._left = self._left[:count], self._left[count:]
        return np.array([self._dataset[query][3] for query in batch], dtype=np.int64)

    def observe(self, pair_ids: IntArray, similarity: FloatArray) -> None:
        """Tell it what a forward pass gave."""
        import torch

        values, ids = torch.from_numpy(np.array(similarity)), torch.from_numpy(np.array(pair_ids))
        self._dataset.get_query_scores_from_trainer(losses=values, positive_scores=values, indices=ids)
        self._dataset.get_positive_scores_from_trainer(positive_scores=values, indices=ids)

    def state_at(self, step: int, similarity: FloatArray, redraws: int) -> ReleaseState:
        """Give it the similarities of all pairs, ``[N]``, and begin passes at a step."""
        self.observe(np.arange(self.pairs.n_pairs), similarity)
        self._dataset.set_global_step(step)
        counts = np.zeros(self.pairs.n_queries)
        for number in range(redraws):
            np.random.seed(number)  # it draws from NumPy's global generator
            counts[self._dataset.prune()] += 1
        top = np.zeros(self.pairs.n_queries, dtype=bool)
        top[self._dataset.remained_indices] = True
        threshold = float(self._dataset.positive_threshold)
        document = [self._document_weights(query) for query in range(self.pairs.n_queries)]
        return ReleaseState(len(self._dataset), top, counts / redraws, threshold, np.concatenate(document))

    def _document_weights(self, query: int) -> NDArray[np.float64]:
        weighting = sys.modules[f"{PACKAGE}.data.weighting"]
        ids = slice(int(self.pairs.query_offsets[query]), int(self.pairs.query_offsets[query + 1]))
        params = {"threshold": self._dataset.positive_threshold, "keep_higher": True, "sampling_strength": 5}
        scores = self._dataset.positive_selection_scores[ids]
        return np.asarray(weighting.score_to_weights(scores, "soft_thresholded", params), dtype=np.float64)


def _texts() -> SimpleNamespace:
    return SimpleNamespace(
        query_instruction_for_retrieval=None, passage_instruction_for_retrieval=None, train_group_size=2
    )


def _config(train_data: tuple[list[dict[str, Any]], dict[int, Any]], max_steps: int, seed: int) -> SimpleNamespace:
    """The values of its shipped configuration of dp."""
    shared = {"scheduler": "cosine", "delta": 1.0, "reset_interval": 1, "keep_higher": True}
    query = SimpleNamespace(
        criteria="sim",
        pooling="mean",
        cutoff_ratio_start=0.25,
        sampling_strength_start=2,
        sampling_strength_end=5,
        **shared,
    )
    document = SimpleNamespace(cutoff_ratio_start=0.25, cutoff_ratio_end=0.5, sampling_strength=5, **shared)
    return SimpleNamespace(
        train_data=train_data,
        seed=seed,
        pairwise=False,
        optimization=SimpleNamespace(max_steps=max_steps),
        opera=SimpleNamespace(query_selection=query, positive_selection=document),
    )
