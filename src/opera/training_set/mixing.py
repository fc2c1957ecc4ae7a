"""The training set of several data sets: each is built by itself, and then they are put one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.mixing import MixingSettings, shares_by_name
from opera.core.arrays import IntArray
from opera.data import RetrievalData
from opera.data.combined import views
from opera.data.pairs import TrainingPairs
from opera.methods import PairScores
from opera.methods.mixed import Mixture
from opera.training_set.build import TrainingSet, build_training_set
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import Lists, Negatives
from opera.training_set.prepare import Prepared


def shares_of(
    data: RetrievalData, pairs: Sequence[int], settings: MixingSettings
) -> NDArray[np.float64]:
    """Return the share of the draws from each data set, float64 ``[sets]``; they add up to 1.

    Args:
        data: several data sets.
        pairs: how many training pairs each has.
        settings: how they are mixed.
    """
    if settings.mix == "proportional":
        weights = np.array(pairs, dtype=np.float64)
    elif settings.mix == "equal":
        weights = np.ones(len(pairs))
    else:
        given = shares_by_name(settings.mix)
        weights = np.array([given[part.name] for part in data.parts])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def build_mixed(prepared: Prepared) -> TrainingSet:
    """Build the training set of one data set, or of several.

    Noise, negatives and pretrained scores of a set come from its own documents. Weights of pairs have mean 1 in each.
    """
    if not prepared.data.parts:
        return build_training_set(prepared)
    sets = [
        build_training_set(
            replace(
                prepared, data=data, original=original, negatives=_kind(prepared.negatives, data)
            )
        )
        for data, original in zip(views(prepared.data), views(prepared.original), strict=True)
    ]
    return _joined(prepared, sets)


def _kind(kind: str, data: RetrievalData) -> str:
    """Negatives that one set has and another has not are random in the other."""
    missing = {"given": data.given_negatives, "teacher": data.teacher}
    return "random" if kind in missing and missing[kind] is None else kind


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
        for number, negatives in enumerate(self.sets):
            own = owner == number
            if own.any():
                drawn = negatives.draw(
                    np.asarray(queries)[own] - self.first_queries[number], count, seed, step
                )
                rows[own] = drawn + self.first_documents[number]
        return rows


def _joined(prepared: Prepared, sets: Sequence[TrainingSet]) -> TrainingSet:
    data, first_queries = prepared.data, np.cumsum([0, *(own.pairs.n_queries for own in sets)])
    documents = np.array([part.first_document for part in data.parts])
    query_rows = [
        own.query_rows + part.first_query for part, own in zip(data.parts, sets, strict=True)
    ]
    pairs = TrainingPairs.from_arrays(
        np.concatenate(
            [
                own.pairs.pair_query + first
                for first, own in zip(first_queries[:-1], sets, strict=True)
            ]
        ),
        np.concatenate(
            [own.pairs.pair_doc + first for first, own in zip(documents, sets, strict=True)]
        ),
    )
    shares = shares_of(data, [own.pairs.n_pairs for own in sets], prepared.settings)
    pruned = [own.pruned_positives for own in sets if own.pruned_positives is not None]
    pools = [own.smallest_cbs_pool for own in sets if own.smallest_cbs_pool is not None]
    return TrainingSet(
        data=data,
        query_rows=np.concatenate(query_rows).astype(np.int32),
        pairs=pairs,
        grades=np.concatenate([own.grades for own in sets]),
        injected=np.concatenate([own.injected for own in sets]),
        pair_weights=_with_ones(sets, lambda own: own.pair_weights),
        loss_weights=_with_ones(sets, lambda own: own.loss_weights),
        teacher=data.teacher,
        known=KnownPositives.joined(
            [own.known for own in sets], first_queries[:-1], documents, len(data.corpus)
        ),
        negatives=_NegativesOfSets([own.negatives for own in sets], first_queries, documents),
        negatives_kind=prepared.negatives,
        listed=_joined_lists(sets, documents),
        pruned_positives=sum(pruned) if pruned else None,
        scores=_joined_scores(pairs, [own.scores for own in sets]),
        similarity=_together([own.similarity for own in sets]),
        smallest_cbs_pool=min(pools, default=None),
        start_scores=_together([own.start_scores for own in sets]),
        mixture=Mixture(first_queries, shares, prepared.settings.one_set_per_step),
    )


def _joined_lists(sets: Sequence[TrainingSet], first_documents: NDArray[np.int64]) -> Lists | None:
    """Put the lists of all sets together, empty ones for a set without; ``None`` where none has some."""
    if all(own.listed is None for own in sets):
        return None
    none = np.empty(0, dtype=np.int32)
    lists = [
        own.listed or Lists(np.zeros(own.pairs.n_queries, dtype=np.int64), none) for own in sets
    ]
    rows = [own.doc_rows + first for own, first in zip(lists, first_documents, strict=True)]
    return Lists(
        np.concatenate([own.counts for own in lists]), np.concatenate(rows).astype(np.int32)
    )


def _with_ones(
    sets: Sequence[TrainingSet], get: Callable[[TrainingSet], NDArray[np.float32] | None]
) -> NDArray[np.float32] | None:
    """Put the weights of all sets together, 1 in a set without any; ``None`` where none has some."""
    found = [(get(own), own.pairs.n_pairs) for own in sets]
    if all(weights is None for weights, _ in found):
        return None
    return np.concatenate(
        [np.ones(n, dtype=np.float32) if weights is None else weights for weights, n in found]
    )


def _together(arrays: Sequence[Any]) -> Any:
    return None if any(array is None for array in arrays) else np.concatenate(arrays)


def _joined_scores(pairs: TrainingPairs, scores: Sequence[PairScores | None]) -> PairScores | None:
    found = [own for own in scores if own is not None]
    if len(found) < len(scores):
        return None
    cbs = _together([own.cbs for own in found])
    return PairScores(
        pairs,
        _together([own.similarity for own in found]),
        _together([own.loss for own in found]),
        cbs,
    )
