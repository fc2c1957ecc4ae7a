"""The batches that sentence-transformers' trainer reads from a data set with a method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray
from opera.core.errors import SettingError
from opera.encoder.embeddings import Vectors
from opera.engine.pair_rows import PairRows
from opera.engine.sampler import PairSampler
from opera.labels.estimate import NoisyLabels, estimate
from opera.labels.ranks import not_comparable
from opera.labels.review import Item, Labelled, training_pairs
from opera.training_set.documents import KnownPositives

ADVICE_ONCE = (
    "create a PairPruning for each training, and evaluate on your data set, not on pruning.dataset"
)


@dataclass(frozen=True)
class LabelledRows(Labelled):
    """Labelled pairs with the rows of a user's data set."""

    rows: PairRows

    def pair(self, pair_id: int, stratum: str | None, why: str, rank: float | None = None) -> Item:
        """Describe a pair; both ids are the row number."""
        row = str(self.rows.rows(np.array([pair_id]))[0])
        return {**super().pair(pair_id, stratum, why, rank), "query_id": row, "doc_id": row}


class RowBatches:
    """The batches that the trainer reads from one data set.

    An epoch has as many batches as without pruning. All batches are full, and each process has
    equally many.

    Attributes:
        rows: the pairs of the data set.
        dataset: the rows with pair ids.
        vectors: the base model's embeddings of queries and documents, if the method needs scores.
        sampler: samples the pairs; exists once training begins.
        length: batches per epoch, over all processes; 0 until a trainer asks for batches.
        epoch_start: the first step of the epoch.
    """

    sampler: PairSampler
    drop_last = False
    length = batch_size = epoch_start = _to_skip = 0

    def __init__(
        self, rows: PairRows, dataset: Any, vectors: tuple[Vectors, Vectors] | None
    ) -> None:
        self.rows, self.dataset, self.vectors = rows, dataset, vectors
        query_rows = np.arange(rows.pairs.n_queries)
        self._known = KnownPositives.of(rows.data, query_rows, rows.pairs)
        self._trained_documents: NDArray[np.bool_] = np.zeros(len(rows.data.corpus), dtype=bool)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[int]]:
        """Begin an epoch: yield the batches that a resumed trainer skips, then batches that it has
        read but not trained, then new batches."""
        if not hasattr(self, "sampler"):
            raise SettingError(
                "PairPruning: a training or evaluation began without its callback; pass "
                f"callbacks=[pruning.callback] to the trainer; {ADVICE_ONCE}"
            )
        skipped, self._to_skip = self._to_skip, 0
        self.epoch_start = self.sampler.trained_steps - skipped
        return self._epoch(skipped)

    def _epoch(self, skipped: int) -> Iterator[list[int]]:
        yield from [[0] * self.batch_size] * skipped
        for step in islice(self.sampler.upcoming(), self.length - skipped):
            yield self.rows.rows(self.sampler.sampled[step])

    def resume(self, epoch_start: int, skips: bool) -> int:
        """Continue at the sampler's step, and return how many batches of the epoch to skip."""
        self.mark_trained(np.flatnonzero(self.sampler.trained))
        self._to_skip = self.sampler.trained_steps - epoch_start if skips else 0
        return self._to_skip

    def mark_trained(self, pair_ids: IntArray) -> None:
        """Record that the model trained on the documents of these pairs as positives."""
        self._trained_documents[self.rows.pairs.pair_doc[pair_ids]] = True

    def not_comparable(self, pair_ids: IntArray) -> BoolArray:
        """Mark the positives that a pair's document must not be ranked among: bool ``[m, m]``."""
        pairs = self.rows.pairs
        documents = pairs.pair_doc[pair_ids]
        known = self._known.contains(pairs.pair_query[pair_ids][:, None], documents)
        return not_comparable(known, self._trained_documents[documents])

    def review(self, seed: int) -> dict[str, Any]:
        """Describe the pairs to review; their ids are rows of the data set."""
        rows, visits, kept = self.rows, self.sampler.all_visits(), self.sampler.kept
        labelled = LabelledRows(
            rows.data, np.arange(rows.pairs.n_queries, dtype=np.int32), rows.pairs, rows
        )
        return training_pairs(labelled, estimate(rows.pairs, visits, kept), visits, kept, seed)

    def noisy_labels(self) -> NoisyLabels | None:
        """Return the estimate by row of the data set; NaN for a row without a pair."""
        of_pairs = estimate(self.rows.pairs, self.sampler.all_visits(), self.sampler.kept)
        if of_pairs is None:
            return None
        rows = self.rows.row_of_pair
        by_row = np.full(len(self.rows.dataset), np.nan, dtype=of_pairs.probability_wrong.dtype)
        by_row[rows] = of_pairs.probability_wrong
        return replace(of_pairs, probability_wrong=by_row, suspicious=rows[of_pairs.suspicious])
