"""Explicit negatives of the training queries: random, mined from the untrained model's ranking,
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
from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.data import GivenNegatives, RetrievalData
from opera.retrieval.measures import Ranking
from opera.training_set.documents import DocumentPool, KnownPositives

log = logging.getLogger("opera")

CHUNK_QUERIES = 8_192

Veto = Callable[[IntArray, BoolArray, FloatArray], BoolArray]
"""Returns which candidates stay, of corpus rows, those to look at, and similarities: all ``[n,
depth]``.
"""

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
        known: the known positives; with ``prune_before_mining`` only those that the method keeps.
        settings: the run's settings.
        search: ranks the corpus for each training query by the pretrained model, down to the depth
            it is given.
        veto: drops mined candidates that may be relevant.
    """

    data: RetrievalData
    query_rows: NDArray[np.int32]
    known: KnownPositives
    settings: TrainSettings
    search: Callable[[int], Ranking]
    veto: Veto | None = None

    @property
    def pool(self) -> DocumentPool:
        """The documents that may be negatives: those with a text."""
        return DocumentPool.of(self.data, self.settings.corpus_text)


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
class Lists:
    """Documents listed per training query, such as mined ones.

    Attributes:
        counts: int64 ``[n]``, length of each query's list.
        doc_rows: int32 ``[K]``, corpus rows, list after list.
    """

    counts: NDArray[np.int64]
    doc_rows: NDArray[np.int32]

    @property
    def queries(self) -> NDArray[np.int64]:
        """The training query of each document: int64 ``[K]``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def queries_without(self) -> int:
        """How many queries have an empty list."""
        return int((self.counts == 0).sum())


@dataclass(frozen=True)
class ListedNegatives:
    """Uniform over a list per query; over the documents for a query whose list is empty.

    Attributes:
        offsets: int64 ``[n + 1]``; query q's list is ``offsets[q]`` to ``offsets[q + 1]``.
        doc_rows: int32, corpus rows.
        pool: the documents.
    """

    offsets: NDArray[np.int64]
    doc_rows: NDArray[np.int32]
    pool: DocumentPool

    @classmethod
    def from_lists(cls, lists: Sequence[IntArray], pool: DocumentPool) -> ListedNegatives:
        """Build from one array of corpus rows per query."""
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])]).astype(np.int64)
        rows = np.concatenate(lists) if lists else np.empty(0)
        return cls(offsets, rows.astype(np.int32), pool)

    @property
    def lists(self) -> Lists:
        """What is listed."""
        return Lists(np.diff(self.offsets), self.doc_rows)

    @property
    def queries_without(self) -> int:
        """How many queries have an empty list."""
        return self.lists.queries_without

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return rows, without repeats where a list is long enough; the cost does not depend on its
        length.
        """
        rng = generator(seed, "negatives", step)
        starts = self.offsets[queries]
        lengths = self.offsets[np.asarray(queries) + 1] - starts
        places = np.empty((len(queries), count), dtype=np.int64)
        distinct = lengths >= count
        for at in range(count):
            # Draw a place among those not taken yet, then shift it past the taken places before it.
            place = rng.integers(np.where(distinct, lengths - at, np.maximum(lengths, 1)))
            for taken in np.sort(places[:, :at], axis=1).T:
                place += distinct & (place >= taken)
            places[:, at] = place
        empty = lengths == 0
        if not empty.any():
            return np.asarray(self.doc_rows[starts[:, None] + places], dtype=np.int64)
        drawn = self.pool.rows(rng.integers(len(self.pool), size=places.shape))
        drawn[~empty] = self.doc_rows[starts[~empty, None] + places[~empty]]
        return drawn


def check_range(ranks: tuple[int, int], n_docs: int, name: str = "range") -> None:
    """Refuse a rank range that starts past the corpus.

    Raises:
        SettingError: with the numbers.
    """
    if ranks[0] > n_docs:
        raise SettingError(
            f"{name}={ranks[0]}:{ranks[1]} starts past the end of the corpus ({n_docs} documents)"
        )


def mine_hard_negatives(
    ranking: Ranking,
    known: KnownPositives,
    ranks: tuple[int, int],
    keep: int,
    seed: int,
    pool: DocumentPool,
    veto: Veto | None = None,
) -> ListedNegatives:
    """Keep the documents at ranks LO to HI of each training query that are not its known positives.

    Positives and documents outside the pool count as ranks. Where more than ``keep`` documents are
    left, a random ``keep`` of them stay (the release).

    Args:
        ranking: the corpus ranked for each training query by the pretrained model, down to rank HI.
        known: the known positives.
        ranks: LO and HI, 1-based, both included.
        keep: maximum negatives per query.
        seed: seed of the sampling.
        pool: the documents that may be negatives.
        veto: drops candidates that may be relevant.
    """
    check_range(ranks, known.n_docs)
    part = slice(ranks[0] - 1, ranks[1])
    candidates = ranking.doc_rows[:, part]
    allowed = np.empty(candidates.shape, dtype=bool)
    for start in range(0, len(candidates), CHUNK_QUERIES):
        some = candidates[start : start + CHUNK_QUERIES]
        positive = known.contains(np.arange(start, start + len(some))[:, None], some)
        allowed[start : start + len(some)] = pool.holds(some) & ~positive
    if veto is not None:
        allowed = veto(candidates, allowed, ranking.scores[:, part])
    rng = generator(seed, "mine")
    for row_allowed, count in zip(allowed, allowed.sum(axis=1).tolist(), strict=True):
        if count > keep:
            left = np.flatnonzero(row_allowed)
            row_allowed[left] = False
            row_allowed[left[rng.choice(count, keep, replace=False)]] = True
    offsets = np.concatenate([[0], np.cumsum(allowed.sum(axis=1))]).astype(np.int64)
    return ListedNegatives(offsets, candidates[allowed].astype(np.int32), pool)


MOST_MINED = 200
"""Hard negatives kept per query in training, as in the release."""


def _random(inputs: NegativeInputs) -> Negatives:
    return RandomNegatives(inputs.pool)


def _hard(inputs: NegativeInputs) -> Negatives:
    settings = inputs.settings
    ranking = inputs.search(settings.mining_range[1])
    seed = inputs.settings.seed
    return mine_hard_negatives(
        ranking, inputs.known, settings.mining_range, MOST_MINED, seed, inputs.pool, inputs.veto
    )


def given_of(data: RetrievalData) -> GivenNegatives:
    """Return the negatives that came with the data.

    Raises:
        SettingError: if none came with them.
    """
    if data.given_negatives is None:
        raise SettingError(
            f"negatives=given: {data.title} holds no negatives; use negatives=random or "
            f"negatives=hard"
        )
    return data.given_negatives


def given_negatives(
    data: RetrievalData, query_rows: IntArray, known: KnownPositives, pool: DocumentPool
) -> ListedNegatives:
    """Return the negatives that came with the data, but for documents without a text and known
    positives.
    """
    given = given_of(data)
    lists = [given.doc_rows[given.offsets[row] : given.offsets[row + 1]] for row in query_rows]
    return _listed(lists, known, pool, "given negatives")


def _given(inputs: NegativeInputs) -> Negatives:
    return given_negatives(inputs.data, inputs.query_rows, inputs.known, inputs.pool)


def _scored(inputs: NegativeInputs) -> Negatives:
    teacher = inputs.data.teacher
    assert teacher is not None
    bounds = np.searchsorted(teacher.query_rows, [inputs.query_rows, inputs.query_rows + 1])
    lists = [teacher.doc_rows[start:stop] for start, stop in bounds.T]
    return _listed(lists, inputs.known, inputs.pool)


def _listed(
    lists: Sequence[IntArray], known: KnownPositives, pool: DocumentPool, what: str | None = None
) -> ListedNegatives:
    """Leave out documents without a text and known positives; log how many, where ``what`` names
    the documents.
    """
    full = [rows[pool.holds(rows)] for rows in lists]
    kept = [
        rows[~known.contains(np.full(len(rows), query), rows)] for query, rows in enumerate(full)
    ]
    for before, after, reason in (
        (lists, full, "have no text"),
        (full, kept, "are positives of their query"),
    ):
        if (dropped := sum(map(len, before)) - sum(map(len, after))) and what is not None:
            log.info("note: left out %d %s that %s", dropped, what, reason)
    return ListedNegatives.from_lists(kept, pool)


NEGATIVES.ship(random=_random, hard=_hard, given=_given, teacher=_scored)


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
        given_of(data)
    if kind == "teacher" and data.teacher is None:
        raise SettingError(
            "negatives=teacher: there are no scores of a teacher; give them with --teacher"
        )
    if kind == "hard":
        check_range(settings.mining_range, len(data.corpus))


def build_negatives(kind: str, inputs: NegativeInputs) -> Negatives:
    """Build the negatives of a kind; warn of queries that have none of it."""
    if inputs.settings.n_negatives == 0:
        return _random(inputs)
    negatives: Negatives = NEGATIVES.find(kind)(inputs)
    if isinstance(negatives, ListedNegatives) and negatives.queries_without:
        log.info(
            "note: %d queries have no %s negative: theirs are random",
            negatives.queries_without,
            kind,
        )
    return negatives
