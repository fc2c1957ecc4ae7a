"""The training set of several data sets: each is built by itself, then they are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MixingSettings, shares_by_name
from opera.core.arrays import IntArray
from opera.data import RetrievalData
from opera.data.combined import each_set, first_rows
from opera.data.pairs import TrainingPairs
from opera.methods import PairScores
from opera.methods.mixed import Mixture
from opera.training_set.build import TrainingSet, build_training_set
from opera.training_set.documents import KnownPositives
from opera.training_set.negatives import Lists, Negatives
from opera.training_set.prepare import Prepared


def shares_of(
    data: RetrievalData, pairs: Sequence[int], settings: MixingSettings
) -> NDArray[np.float64]:
    """Return the share of the draws from each set, of sum 1, by its pairs: float64 ``[sets]``."""
    if settings.mix in ("proportional", "equal"):
        weights = np.array(pairs, dtype=np.float64) ** (settings.mix == "proportional")
    else:
        given = shares_by_name(settings.mix)
        weights = np.array([given[own.name] for own in data.sets])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def build_mixed(prepared: Prepared) -> TrainingSet:
    """Build the training set of one data set, or of several.

    Noise, negatives and pretrained scores of a set come from its own documents. Weights of pairs
    have mean 1 in each.
    """
    sets = []
    for data, original in zip(each_set(prepared.data), each_set(prepared.original), strict=True):
        kind = prepared.negatives
        missing = {"given": data.given_negatives, "teacher": data.teacher}.get(kind, data) is None
        own = replace(prepared, data=data, original=original)
        sets.append(build_training_set(replace(own, negatives="random") if missing else own))
    return _joined(prepared, sets) if prepared.data.sets else sets[0]


@dataclass(frozen=True)
class _NegativesOfSets:
    """The negatives of each set, by training query."""

    sets: Sequence[Negatives]
    first_queries: NDArray[np.int64]
    first_documents: NDArray[np.int64]

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return corpus rows, int64 ``[B, count]``, each of its query's own set."""
        owner = np.searchsorted(self.first_queries, queries, side="right") - 1
        rows = np.empty((len(queries), count), dtype=np.int64)
        for number in np.unique(owner).tolist():
            own = np.asarray(queries)[owner == number] - self.first_queries[number]
            drawn = self.sets[number].draw(own, count, seed, step)
            rows[owner == number] = drawn + self.first_documents[number]
        return rows


def _joined(prepared: Prepared, sets: Sequence[TrainingSet]) -> TrainingSet:
    data, first_queries = prepared.data, np.cumsum([0, *(own.pairs.n_queries for own in sets)])
    first_query_rows, first_documents = first_rows(data)
    zeros = np.zeros(len(sets), dtype=np.int64)

    def together(
        get: Callable[[TrainingSet], Any], firsts: IntArray = zeros, fill: Any = None
    ) -> Any:
        """Join an array of each set, shifted to the rows of all; ``fill`` makes a missing one."""
        arrays = [get(own) for own in sets]
        without = [array is None for array in arrays]
        if all(without) or (any(without) and fill is None):
            return None
        return np.concatenate(
            [
                fill(own) if array is None else array + array.dtype.type(first)
                for own, array, first in zip(sets, arrays, firsts, strict=False)
            ]
        )

    def ones(own: TrainingSet) -> NDArray[np.float32]:
        return np.ones(own.pairs.n_pairs, dtype=np.float32)

    pairs = TrainingPairs.from_arrays(
        together(lambda own: own.pairs.pair_query, first_queries),
        together(lambda own: own.pairs.pair_doc, first_documents),
    )
    scores: list[Any] = [
        together(attrgetter(f"scores.{name}")) if sets[0].scores is not None else None
        for name in ("similarity", "loss", "cbs")
    ]
    listed = any(own.listed for own in sets) and Lists(
        together(
            lambda own: own.listed and own.listed.counts,
            fill=lambda own: np.zeros(own.pairs.n_queries, np.int64),
        ),
        together(
            lambda own: own.listed and own.listed.doc_rows,
            first_documents,
            lambda own: np.empty(0, np.int32),
        ),
    )
    pruned = [own.pruned_positives for own in sets if own.pruned_positives is not None]
    shares = shares_of(data, [own.pairs.n_pairs for own in sets], prepared.settings)
    return TrainingSet(
        data=data,
        query_rows=together(lambda own: own.query_rows, first_query_rows),
        pairs=pairs,
        grades=together(lambda own: own.grades),
        injected=together(lambda own: own.injected),
        pair_weights=together(lambda own: own.pair_weights, fill=ones),
        loss_weights=together(lambda own: own.loss_weights, fill=ones),
        teacher=data.teacher,
        known=KnownPositives.joined(
            [own.known for own in sets], first_queries[:-1], first_documents[:-1], len(data.corpus)
        ),
        negatives=_NegativesOfSets([own.negatives for own in sets], first_queries, first_documents),
        negatives_kind=prepared.negatives,
        listed=listed or None,
        pruned_positives=sum(pruned) if pruned else None,
        scores=None if scores[0] is None else PairScores(pairs, *scores),
        similarity=together(lambda own: own.similarity),
        smallest_cbs_pool=min(
            (own.smallest_cbs_pool for own in sets if own.smallest_cbs_pool is not None),
            default=None,
        ),
        start_scores=together(lambda own: own.start_scores),
        mixture=Mixture(first_queries, shares, prepared.settings.one_set_per_step),
    )
