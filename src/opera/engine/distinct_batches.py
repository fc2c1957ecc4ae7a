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
    """Samples batches that hold each query once, because a loss in a script takes the documents of
    all other rows for negatives.

    A pair whose query is already in the batch waits for a later batch. If the loss cannot exclude
    known positives, a pair also waits if its documents and those of the batch's pairs are known
    positives of the other's query.

    The method samples at most one batch more than a batch needs, so its schedule stays in step with
    the trainer. If pairs are still missing, pairs with known positives fill the batch, then pairs
    of other queries, sampled by the method's probabilities. At most one batch of pairs waits.

    Args:
        method: samples the pairs.
        documents: int ``[N, c]``, each pair's positive and negatives.
        known: the known positives of each query.
        masks: whether the loss excludes known positives.

    Raises:
        SettingError: if the method samples fewer queries than a batch has rows.
    """

    def __init__(
        self, method: Method[Any], documents: IntArray, known: KnownPositives, masks: bool
    ) -> None:
        super().__init__(method)
        self.pair_documents, self.known, self.masks = documents, known, masks
        self._others(np.empty(0, dtype=np.int64), method.plan.batch_size)  # raises the error

    def take(self, count: int) -> Draw:
        """Return the pairs of the next batch."""
        while len(self._waiting.pair_ids) < count:
            self._draw()
        places = self._places_apart(count)
        if len(places) < count:
            self._draw()
            places = self._places_apart(count)
        ids, weights = self._waiting.pair_ids, self._waiting.weights
        order = np.concatenate([places, np.delete(np.arange(len(ids)), places)])
        queries = self.method.pairs.pair_query[ids[order]]
        places = order[np.sort(np.unique(queries, return_index=True)[1])][:count]
        others = self._others(queries, count - len(places))
        new = Draw.unweighted(others)
        self._waiting = Draw(np.delete(ids, places)[:count], np.delete(weights, places)[:count])
        return Draw(
            np.concatenate([ids[places], new.pair_ids]),
            np.concatenate([weights[places], new.weights]),
        )

    def _places_apart(self, count: int) -> NDArray[np.int64]:
        """Return the places of the first ``count`` waiting pairs that may share a batch."""
        places, queries = list[int](), set[int]()
        documents, positives = set[int](), set[int]()
        for place, pair in enumerate(self._waiting.pair_ids.tolist()):
            query = int(self.method.pairs.pair_query[pair])
            if query in queries or len(places) == count:
                continue
            if not self.masks:
                new = set(self.pair_documents[pair].tolist())
                known = set(self.known.of_query(query).tolist())
                if positives & new or documents & known:
                    continue
                documents, positives = documents | new, positives | known
            queries.add(query)
            places.append(place)
        return np.array(places, dtype=np.int64)

    def _others(self, queries: IntArray, count: int) -> NDArray[np.int64]:
        """Sample ``count`` pairs of queries that are not among ``queries``, by the method's
        probabilities."""
        if count == 0:
            return np.empty(0, dtype=np.int64)
        step, seed = max(0, self._next_step - 1), self.method.plan.seed
        probabilities, pairs = self.method.probabilities(step), self.method.pairs
        left = probabilities.query.copy()
        left[queries] = 0
        if (left > 0).sum() < count:
            distinct, size = int((probabilities.query > 0).sum()), self.method.plan.batch_size
            raise SettingError(
                f"per_device_train_batch_size={size}: method={self.method.name} samples only "
                f"{counted(distinct, 'distinct query')}, and a batch must not hold a query twice; "
                f"use {distinct} or less"
            )
        rng = generator(seed, "distinct_batches", self._next_step)
        chosen = rng.choice(len(left), count, replace=False, p=left / left.sum())
        return draw_weighted_documents(rng, pairs, chosen, lambda ids: probabilities.document[ids])
