"""Explicit negatives of the training queries: random, mined from the base model's ranking,
given with the data, or those that a teacher scored.

A new kind is a class and a line: the class takes a :class:`NegativeInputs` and has ``draw``, and
``@register_negatives("name")`` above it makes it a value of the setting ``negatives``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import NEGATIVES
from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.data import GivenNegatives, RetrievalData
from opera.data.identity import equal_places, teacher_by_text
from opera.data.pairs import TrainingPairs
from opera.retrieval.measures import Ranking
from opera.training_set.documents import DocumentPool, KnownPositives, Lists
from opera.training_set.mining import Miner, check_range, first_of_copies

log = logging.getLogger("opera")

MOST_MINED = 200
"""Hard negatives kept per query in training, as in the release."""

Kind = TypeVar("Kind", bound=Callable[..., Any])


class Negatives(Protocol):
    """Where the explicit negatives of a batch come from."""

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return corpus rows, int64 ``[B, count]``, for training queries ``[B]`` at a step."""
        ...


@dataclass(frozen=True)
class NegativeInputs:
    """What a kind of negatives is built from.

    Attributes:
        data: the data set.
        query_rows: int32 ``[n]``, the query table's row of each training query.
        pairs: the training pairs.
        known: the known positives; with ``prune_before_mining`` only those that the method keeps.
        settings: the run's settings.
        miner: the base model, which mines.
    """

    data: RetrievalData
    query_rows: NDArray[np.int32]
    pairs: TrainingPairs
    known: KnownPositives
    settings: TrainSettings
    miner: Miner

    @property
    def pool(self) -> DocumentPool:
        """The documents that may be negatives: those with a text."""
        return DocumentPool.of(self.data, self.settings.corpus_text)

    def search(self, depth: int) -> Ranking:
        """Rank the corpus for each training query by the base model, down to a depth."""
        return self.miner.rank(self.query_rows, depth)


@dataclass(frozen=True)
class RandomNegatives:
    """Uniform over the documents."""

    pool: DocumentPool

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return uniform rows; known positives among them are left to the loss's mask."""
        places = generator(seed, "negatives", step).integers(
            len(self.pool), size=len(queries) * count
        )
        return self.pool.rows(places.reshape(len(queries), count))


@dataclass(frozen=True)
class ListedNegatives:
    """Uniform over a list per query; over the documents for a query whose list is empty."""

    lists: Lists
    pool: DocumentPool

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return rows, without repeats where a list is long enough; the cost does not depend on its
        length.
        """
        rng, doc_rows = generator(seed, "negatives", step), self.lists.doc_rows
        starts, lengths = self.lists.offsets[queries], self.lists.counts[queries]
        places = np.empty((len(queries), count), dtype=np.int64)
        distinct = lengths >= count
        for column in range(count):
            # Draw a place among those not taken yet, then shift it past the taken places before it.
            place = rng.integers(np.where(distinct, lengths - column, np.maximum(lengths, 1)))
            for taken in np.sort(places[:, :column], axis=1).T:
                place += distinct & (place >= taken)
            places[:, column] = place
        empty = lengths == 0
        if not empty.any():
            return np.asarray(doc_rows[starts[:, None] + places], dtype=np.int64)
        drawn = self.pool.rows(rng.integers(len(self.pool), size=places.shape))
        drawn[~empty] = doc_rows[starts[~empty, None] + places[~empty]]
        return drawn


def _random(inputs: NegativeInputs) -> Negatives:
    return RandomNegatives(inputs.pool)


def _hard(inputs: NegativeInputs) -> Negatives:
    queries, pairs, known = inputs.query_rows, inputs.pairs, inputs.known
    mined = inputs.miner.mine(queries, pairs, known, MOST_MINED, inputs.settings.seed)
    return ListedNegatives(mined, inputs.pool)


def _given(inputs: NegativeInputs) -> Negatives:
    lists = given_negatives(inputs.data, inputs.query_rows, inputs.known, inputs.pool)
    return ListedNegatives(lists, inputs.pool)


def _scored(inputs: NegativeInputs) -> Negatives:
    data = inputs.data
    assert data.teacher is not None
    teacher, queries = teacher_by_text(data, data.teacher), data.query_group[inputs.query_rows]
    bounds = np.searchsorted(teacher.query_rows, [queries, queries + 1])
    lists = [teacher.doc_rows[start:stop] for start, stop in bounds.T]
    return ListedNegatives(_allowed(lists, inputs.known, inputs.pool), inputs.pool)


NEGATIVES.ship(random=_random, hard=_hard, given=_given, teacher=_scored)


def given_negatives(
    data: RetrievalData, query_rows: IntArray, known: KnownPositives, pool: DocumentPool
) -> Lists:
    """Return the negatives that came with a query or with another of the same text, but for
    documents without a text and known positives; log how many these are.
    """
    negatives = _given_of(data)
    query, rows = equal_places(data.query_group[query_rows], data.query_group)
    lists = [np.empty(0, dtype=np.int32) for _ in query_rows]
    for number, row in zip(query.tolist(), rows.tolist(), strict=True):
        more = negatives.doc_rows[negatives.offsets[row] : negatives.offsets[row + 1]]
        lists[number] = np.concatenate([lists[number], more])
    return _allowed(lists, known, pool, "given negatives")


def _given_of(data: RetrievalData) -> GivenNegatives:
    if data.given_negatives is None:
        raise SettingError(
            f"negatives=given: {data.title} holds no negatives; use negatives=random or "
            "negatives=hard"
        )
    return data.given_negatives


def _allowed(
    lists: Sequence[IntArray], known: KnownPositives, pool: DocumentPool, what: str | None = None
) -> Lists:
    """Leave out documents without a text and known positives; log how many of ``what``."""
    full = [rows[pool.holds(rows)] for rows in lists]
    allowed = [
        rows[first_of_copies(pool.group[rows][None])[0] & ~known.contains(query, rows)]
        for query, rows in zip(np.arange(len(full))[:, None], full, strict=True)
    ]
    sizes = [sum(map(len, documents)) for documents in (lists, full, allowed)]
    for number, reason in enumerate(("have no text", "are positives of their query")):
        if what is not None and sizes[number] > sizes[number + 1]:
            log.info(
                "note: left out %d %s that %s", sizes[number] - sizes[number + 1], what, reason
            )
    return Lists.of(allowed)


def register_negatives(name: str) -> Callable[[Kind], Kind]:
    """Return a decorator that makes ``name`` a value of the setting ``negatives``.

    It decorates a class, or a function, that takes a :class:`NegativeInputs` and gives
    :class:`Negatives`.

    Raises:
        ValueError: if another kind has the name, in any case.
    """
    return NEGATIVES.registers(name)


def check_negatives(kind: str, data: RetrievalData, settings: TrainSettings) -> None:
    """Refuse negatives that the data cannot give.

    Raises:
        SettingError: for given or scored negatives where there are none, or a range past the
            corpus.
    """
    if kind == "given":
        _given_of(data)
    if kind == "teacher" and data.teacher is None:
        raise SettingError(
            "negatives=teacher: there are no scores of a teacher; give them with --teacher"
        )
    if kind == "hard":
        check_range(settings.mining.range, len(data.corpus))


def build_negatives(kind: str, inputs: NegativeInputs) -> Negatives:
    """Build the negatives of a kind; log how many queries have none of it."""
    if inputs.settings.n_negatives == 0:
        return _random(inputs)
    negatives: Negatives = NEGATIVES.find(kind)(inputs)
    if isinstance(negatives, ListedNegatives) and (without := negatives.lists.queries_without):
        log.info("note: %d queries have no %s negative: theirs are random", without, kind)
    return negatives
