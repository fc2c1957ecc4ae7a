"""Compose the batches of a user's script from the pairs that a method samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.terminal import counted
from opera.engine.sampler import SetSampler
from opera.methods import Draw, Method
from opera.methods.draws import draw_weighted_documents
from opera.training_pairs.documents import KnownPositives


class DistinctSampler(SetSampler):
    """Samples batches that hold each query once, because a loss in a script may take the documents
    of all other rows for negatives.

    A pair whose query is already in the batch waits for a later batch. If the loss cannot exclude
    known positives, a pair also waits if one of its documents is a known positive of a query in the
    batch, or the reverse.

    The method samples at most one batch more than a step needs, so its schedule stays in step with
    the trainer. If rows are still missing, pairs with known positives fill the batch, then pairs
    of other queries, sampled by the method's probabilities. At most one batch of pairs waits.

    Args:
        method: samples the pairs.
        documents: int ``[N, c]``, the documents of each pair that the loss cannot exclude.
        known: the known positives of each query.

    Raises:
        SettingError: if the method samples fewer queries than a batch has rows.
    """

    def __init__(self, method: Method[Any], documents: IntArray, known: KnownPositives) -> None:
        super().__init__(method)
        self.documents_of_pair, self.known = documents, known
        self._others([], method.plan.batch_size)  # raises the error before training

    def take(self, count: int) -> Draw:
        """Return the pairs of the next batch."""
        while len(self._waiting.pair_ids) < count:
            self._draw()
        apart = self._places_apart(count)
        if len(apart) < count:
            self._draw()
            apart = self._places_apart(count)
        ids, weights = self._waiting.pair_ids, self._waiting.weights
        order = np.concatenate([apart, np.delete(np.arange(len(ids)), apart)]).astype(np.int64)
        queries = self.method.pairs.pair_query[ids[order]]
        places = order[np.sort(np.unique(queries, return_index=True)[1])[:count]]
        others = self._others(queries, count - len(places))
        self._waiting = Draw(np.delete(ids, places)[:count], np.delete(weights, places)[:count])
        return Draw(
            np.concatenate([ids[places], others]),
            np.concatenate([weights[places], np.ones(len(others), dtype=np.float32)]),
        )

    def _places_apart(self, count: int) -> list[int]:
        """Return the places of the first ``count`` waiting pairs that may share a batch."""
        places, documents, positives = list[int](), set[int](), set[int]()
        for place, pair in enumerate(self._waiting.pair_ids.tolist()):
            query = int(self.method.pairs.pair_query[pair])
            # ~query stands for the query, which must not be in the batch either
            new = {~query, *self.documents_of_pair[pair].tolist()}
            known = {~query, *self.known.of_query(query).tolist()}
            if len(places) < count and positives.isdisjoint(new) and documents.isdisjoint(known):
                places.append(place)
                documents |= new
                positives |= known
        return places

    def _others(self, queries: Any, count: int) -> NDArray[np.int64]:
        """Sample ``count`` pairs of other queries than ``queries``, by the method's
        probabilities."""
        if count == 0:
            return np.empty(0, dtype=np.int64)
        method, step = self.method, max(0, self._next_step - 1)
        probabilities = method.probabilities(step)
        left = np.where(np.isin(np.arange(method.pairs.n_queries), queries), 0, probabilities.query)
        if np.count_nonzero(left) < count:
            distinct = len(np.flatnonzero(probabilities.query))
            raise SettingError(
                f"per_device_train_batch_size={method.plan.batch_size}: method={method.name} "
                f"samples only {counted(distinct, 'distinct query')}, and a batch must not hold a "
                f"query twice; use {distinct} or less"
            )
        rng = generator(method.plan.seed, "distinct_batches", self._next_step)
        chosen = rng.choice(len(left), count, replace=False, p=left / left.sum())
        return draw_weighted_documents(
            rng, method.pairs, chosen, lambda pair_ids: probabilities.document[pair_ids]
        )
