"""Compose the batches of a user's script from the pairs that a method samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from opera.core.arrays import IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.terminal import counted
from opera.methods import Draw, Method
from opera.methods.draws import draw_weighted_documents
from opera.training.documents import KnownPositives
from opera.training.sampler import DataSetSampler


class DistinctSampler(DataSetSampler):
    """Samples batches that hold each query once, because a loss in a script may take the documents
    of all other rows for negatives.

    A pair whose query is already in the batch waits for a later batch. If the loss cannot exclude
    known positives, a pair also waits if one of its documents is a known positive of a query in the
    batch, or the reverse.

    If too few pairs fit, the method samples its next batch early, at most one, so that its schedule
    stays in step with the trainer. If rows are still missing, pairs of different queries follow, by
    the method's probabilities; then pairs with known positives. At most one batch of pairs waits.

    Args:
        method: samples the pairs.
        doc_rows: int ``[N, c]``, the documents of each pair that the loss cannot exclude.
        known: the known positives of each query.

    Raises:
        SettingError: if the method samples fewer queries than a batch has rows.
    """

    def __init__(self, method: Method[Any], doc_rows: IntArray, known: KnownPositives) -> None:
        super().__init__(method)
        self.doc_rows_of_pair, self.known = doc_rows, known
        self._draw_different()  # raises an error before training
        self._waiting = Draw.unweighted(np.empty(0, dtype=np.int64))

    def next_pairs(self, count: int) -> Draw:
        """Return the pairs of the next batch."""
        while len(self._waiting.pair_ids) < count:
            self._draw()
        apart = self._positions_apart(count)
        for draw in (self._draw, self._draw_different):
            if len(apart) < count:
                draw()
                apart = self._positions_apart(count)
        pair_ids, weights = self._waiting.pair_ids, self._waiting.weights
        order = np.concatenate([apart, np.delete(np.arange(len(pair_ids)), apart)]).astype(np.int64)
        query_indices = self.method.pairs.pair_query[pair_ids[order]]
        positions = order[np.sort(np.unique(query_indices, return_index=True)[1])[:count]]
        self._waiting = Draw(
            np.delete(pair_ids, positions)[:count], np.delete(weights, positions)[:count]
        )
        return Draw(pair_ids[positions], weights[positions])

    def _positions_apart(self, count: int) -> list[int]:
        """Return the positions of the first ``count`` waiting pairs that may share a batch."""
        positions, taken, positives = list[int](), set[int](), set[int]()
        for position, pair_id in enumerate(self._waiting.pair_ids.tolist()):
            query_index = int(self.method.pairs.pair_query[pair_id])
            # Both sets hold document rows, and ~query_index for a query in the batch.
            new = {~query_index, *self.doc_rows_of_pair[pair_id].tolist()}
            known = {~query_index, *self.known.of_query(query_index).tolist()}
            if len(positions) < count and positives.isdisjoint(new) and taken.isdisjoint(known):
                positions.append(position)
                taken |= new
                positives |= known
        return positions

    def _draw_different(self) -> None:
        """Sample a batch of different queries by the method's probabilities."""
        method, step = self.method, max(0, self._next_step - 1)
        probabilities, size = method.probabilities(step), method.plan.batch_size
        if (distinct := int(np.count_nonzero(probabilities.query))) < size:
            raise SettingError(
                f"per_device_train_batch_size={size}: method={method.name} samples only "
                f"{counted(distinct, 'distinct query')}, and a batch must not hold a query twice; "
                f"use {distinct} or less"
            )
        rng = generator(method.plan.seed, "distinct_batches", self._next_step)
        query_indices = rng.choice(
            method.pairs.n_queries, size, replace=False, p=probabilities.query
        )
        pair_ids = draw_weighted_documents(
            rng, method.pairs, query_indices, lambda ids: probabilities.document[ids]
        )
        self._add(Draw.unweighted(pair_ids))
