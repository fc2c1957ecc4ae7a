"""Explicit negatives of the training queries.

They are random (from the whole corpus, or among the documents with a training pair), mined from
the base model's ranking, given with the data, or scored by a teacher.
For a new kind, write a class that takes a :class:`NegativeInputs` and has a method ``draw``. The
decorator ``@register_negatives("name")`` makes it a value of the setting ``negatives``.

The module imports torch only to mine, because checks of a run do not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import NEGATIVES, RANDOM_KINDS, MiningSettings
from opera.config.training import TrainSettings
from opera.core.arrays import BoolArray, FloatArray, IntArray, slices
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.terminal import counted, log
from opera.data import RetrievalData
from opera.data.copies import equal_positions, teacher_by_text
from opera.data.pairs import TrainingPairs
from opera.data.qrels import DocumentLists
from opera.data.texts import CorpusText
from opera.retrieval.locate import locate_model
from opera.retrieval.measures import Ranking
from opera.training.documents import DocumentPool, KnownPositives

if TYPE_CHECKING:
    from opera.retrieval.encoder import Encoder
    from opera.retrieval.reranker import Reranker

MOST_DRAWS = 15
"""With more draws per document, random negatives do harm: they push a document without a training
pair away from too many queries, and no pair pulls it back (study: docs/training.md)."""

Kind = TypeVar("Kind", bound=Callable[..., Any])


class Negatives(Protocol):
    """A source of explicit negatives for batches."""

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return document rows, int64 ``[B, count]``, for query indices ``[B]`` at a step."""
        ...


@dataclass(frozen=True)
class NegativeInputs:
    """The inputs of a kind of negatives.

    Attributes:
        data: the data set.
        query_rows: int32 ``[n]``, the row of each training query in the query table.
        pairs: the training pairs.
        known: the known positives; without pruned pairs if ``prune_before_mining``.
        settings: the run's settings.
        miner: mines with the base model.
    """

    data: RetrievalData
    query_rows: NDArray[np.int32]
    pairs: TrainingPairs
    known: KnownPositives
    settings: TrainSettings
    miner: Miner

    @property
    def pool(self) -> DocumentPool:
        """The documents with a text. The loss masks known positives among random ones."""
        return DocumentPool.of(self.data, self.settings.corpus_text)

    def search(self, depth: int) -> Ranking:
        """Rank the corpus for each training query with the base model, down to a depth."""
        return self.miner.rank(self.query_rows, depth)


@dataclass(frozen=True)
class RandomNegatives:
    """Uniform samples of the documents."""

    pool: DocumentPool

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return document rows drawn uniformly. The loss masks known positives among them."""
        positions = generator(seed, "negatives", step).integers(
            len(self.pool), size=len(queries) * count
        )
        return self.pool.doc_rows(positions.reshape(len(queries), count))


@dataclass(frozen=True)
class ListedNegatives:
    """Uniform samples of a list per query, or of all documents if the list is empty."""

    lists: DocumentLists
    pool: DocumentPool

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return document rows, without repeats if the list has at least ``count``."""
        rng, doc_rows = generator(seed, "negatives", step), self.lists.doc_rows
        starts, lengths = self.lists.offsets[queries], self.lists.counts[queries]
        positions = np.empty((len(queries), count), dtype=np.int64)
        distinct = lengths >= count
        for column in range(count):
            # Sample one of the unused positions, then shift it by the number of used ones before
            # it. The cost does not depend on the length of a list.
            position = rng.integers(np.where(distinct, lengths - column, np.maximum(lengths, 1)))
            for used_positions in np.sort(positions[:, :column], axis=1).T:
                position += distinct & (position >= used_positions)
            positions[:, column] = position
        empty = lengths == 0
        sampled = self.pool.doc_rows(rng.integers(len(self.pool), size=positions.shape))
        sampled[~empty] = doc_rows[starts[~empty, None] + positions[~empty]]
        return sampled


def _scored(inputs: NegativeInputs) -> Negatives:
    data = inputs.data
    assert data.teacher is not None
    teacher, query_groups = teacher_by_text(data, data.teacher), data.query_group[inputs.query_rows]
    bounds = np.searchsorted(teacher.query_rows, [query_groups, query_groups + 1])
    lists = [teacher.doc_rows[first:end] for first, end in bounds.T]
    return ListedNegatives(_allowed(lists, inputs.known, inputs.pool), inputs.pool)


def _labelled(inputs: NegativeInputs) -> Negatives:
    labelled = inputs.pool.only(inputs.pairs.pair_doc)
    return RandomNegatives(labelled if len(labelled) else inputs.pool)


NEGATIVES.update(
    none=lambda inputs: RandomNegatives(inputs.pool),
    random=lambda inputs: RandomNegatives(inputs.pool),
    labelled=_labelled,
    hard=lambda inputs: ListedNegatives(
        inputs.miner.mine(inputs.query_rows, inputs.pairs, inputs.known, inputs.settings.seed),
        inputs.pool,
    ),
    given=lambda inputs: ListedNegatives(
        given_negatives(inputs.data, inputs.query_rows, inputs.known, inputs.pool), inputs.pool
    ),
    teacher=_scored,
)


def given_negatives(
    data: RetrievalData, query_rows: IntArray, known: KnownPositives, pool: DocumentPool
) -> DocumentLists:
    """Return the negatives that came with a query or a copy of it.

    Leave out documents without a text and known positives, and log their number.
    """
    negatives = _given_of(data)
    query_indices, rows_of_copies = equal_positions(data.query_group[query_rows], data.query_group)
    lists = [np.empty(0, dtype=np.int32) for _ in query_rows]
    for query_index, query_row in zip(query_indices.tolist(), rows_of_copies.tolist(), strict=True):
        lists[query_index] = np.concatenate([lists[query_index], negatives.of_query(query_row)])
    return _allowed(lists, known, pool, "given negative")


def _given_of(data: RetrievalData) -> DocumentLists:
    if data.given_negatives is None:
        raise SettingError(
            f"negatives=given: {data.title} has no negatives; use negatives=random or "
            "negatives=hard"
        )
    return data.given_negatives


def _allowed(
    lists: Sequence[IntArray], known: KnownPositives, pool: DocumentPool, noun: str | None = None
) -> DocumentLists:
    """Leave out documents without a text and known positives; log their number, if ``noun``."""
    with_text = [doc_rows[pool.holds(doc_rows)] for doc_rows in lists]
    allowed = [
        doc_rows[
            first_of_copies(pool.group[doc_rows][None])[0] & ~known.contains(query_index, doc_rows)
        ]
        for query_index, doc_rows in zip(np.arange(len(with_text))[:, None], with_text, strict=True)
    ]
    sizes = [sum(map(len, documents)) for documents in (lists, with_text, allowed)]
    for number, reason in enumerate(("without a text", "that are positives of the query")):
        if noun is not None and sizes[number] > sizes[number + 1]:
            left_out = counted(sizes[number] - sizes[number + 1], noun)
            log.info("note: left out %s %s", left_out, reason)
    return DocumentLists.of(allowed)


def register_negatives(name: str) -> Callable[[Kind], Kind]:
    """Return a decorator that makes ``name`` a value of the setting ``negatives``.

    It decorates a class or a function that takes a :class:`NegativeInputs` and returns
    :class:`Negatives`.

    Raises:
        ValueError: if another kind has the name, in upper or lower case.

    Examples:
        >>> @register_negatives("first")
        ... class FirstDocuments:
        ...     def __init__(self, inputs):
        ...         self.inputs = inputs
        ...
        ...     def draw(self, queries, count, seed, step):
        ...         return np.zeros((len(queries), count), dtype=np.int64)
        >>> "first" in NEGATIVES
        True
    """
    return NEGATIVES.decorator(name)


def by_draws(kind: str, settings: TrainSettings, n_documents: float, processes: int) -> str:
    """Return the kind of negatives; for random ones, ``random`` or ``labelled`` by the draws.

    Args:
        kind: the kind, without regard to the draws. It stays if the user chose it.
        settings: the run's settings, with the automatic steps and batch size.
        n_documents: the number of documents in the corpus, over the fraction of pairs from it.
        processes: the number of processes that train together.
    """
    if settings.negatives is not None or kind not in RANDOM_KINDS:
        return kind
    draws = settings.draws_per_document(n_documents, processes)
    return "random" if draws <= MOST_DRAWS else "labelled"


def check_negatives(kind: str, data: RetrievalData, settings: TrainSettings) -> None:
    """Check that the data have negatives of a kind.

    Raises:
        SettingError: if the data have no given or scored negatives, or the corpus has too few
            documents to mine.
        ModelError: if the reranker does not exist.
    """
    if kind == "given":
        _given_of(data)
    if kind == "teacher" and data.teacher is None:
        raise SettingError(
            "negatives=teacher: the data have no teacher scores; pass them with --teacher"
        )
    if kind == "hard":
        check_range(settings, len(data.corpus))
        if settings.reranker is not None:
            locate_model(settings.reranker)


def build_negatives(kind: str, inputs: NegativeInputs) -> Negatives:
    """Build the negatives of a kind; log the number of queries without one."""
    if inputs.settings.n_negatives == 0:
        return RandomNegatives(inputs.pool)
    negatives: Negatives = NEGATIVES.find(kind)(inputs)
    if isinstance(negatives, ListedNegatives) and (count := negatives.lists.queries_without):
        log.info(
            "note: using random negatives for %s without a %s negative",
            counted(count, "query"),
            kind,
        )
    return negatives


CANDIDATES_AT_ONCE = 2**20
"""Bounds the temporary arrays over mined candidates."""


def check_range(settings: MiningSettings, n_docs: int) -> None:
    """Check that the range of ranks starts within the corpus.

    Raises:
        SettingError: with the range and the size of the corpus.
    """
    first_rank, last_rank = settings.ranks
    if first_rank > n_docs:
        raise SettingError(
            f"range={first_rank}:{last_rank} starts after the end of the corpus "
            f"({counted(n_docs, 'document')})"
        )


@dataclass(frozen=True)
class Miner:
    """A model and data to mine from.

    Attributes:
        encoder: the model that ranks the corpus.
        data: the texts.
        corpus_text: the encoded part of a document.
        settings: ranks, margins, and how many to keep.
        reranker: the loaded reranker of the settings; removes candidates that it scores as high as
            the query's worst positive.
    """

    encoder: Encoder
    data: RetrievalData
    corpus_text: CorpusText
    settings: MiningSettings
    reranker: Reranker | None = None

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        data: RetrievalData,
        corpus_text: CorpusText,
        settings: MiningSettings,
    ) -> Self:
        """Load the reranker of the settings, if any."""
        from opera.retrieval.reranker import open_reranker

        reranker = None if settings.reranker is None else open_reranker(settings.reranker)
        return cls(encoder, data, corpus_text, settings, reranker)

    def rank(self, query_rows: IntArray, depth: int) -> Ranking:
        """Rank the corpus for queries, down to a depth."""
        from opera.retrieval.search import search_corpus

        return search_corpus(self.encoder, self.data, query_rows, depth, self.corpus_text)

    def mine(
        self,
        query_rows: IntArray,
        pairs: TrainingPairs,
        known: KnownPositives,
        seed: int,
    ) -> DocumentLists:
        """Mine the documents at ranks LO to HI of each training query, without its positives.

        Positives, copies and documents without a text also occupy ranks. If a query has more than
        ``settings.keep`` candidates, choose as many at random (the release).

        Args:
            query_rows: int ``[n]``, the row of each training query in the query table.
            pairs: the training pairs. Margins are relative to the least similar positive.
            known: the positives.
            seed: seed of the random choice.
        """
        from opera.retrieval.encoder import pair_similarities

        (first_rank, last_rank), data, text = self.settings.ranks, self.data, self.corpus_text
        check_range(self.settings, len(data.corpus))
        ranking = self.rank(query_rows, last_rank)
        candidates = ranking.doc_rows[:, first_rank - 1 : last_rank]
        allowed = may_be_negative(candidates, known, DocumentPool.of(data, text))
        margins = (self.settings.relative_margin, self.settings.absolute_margin)
        if any(value is not None for value in (*margins, self.settings.max_score)):
            query_vectors = self.encoder.encode_queries(data, query_rows)
            documents = self.encoder.encode_corpus(data, text)
            positive = lowest_positive(pairs, pair_similarities(pairs, query_vectors, documents))
            fits = ranking.scores[:, first_rank - 1 : last_rank] <= highest_allowed(
                positive, self.settings
            )
            allowed = _filter(allowed, fits, "too similar to the query for the margins")
        if self.reranker is not None:
            query_indices, ranks = np.nonzero(allowed)
            scores = [
                self.reranker.score_pairs(data, query_rows[indices], doc_rows, text)
                for indices, doc_rows in (
                    (pairs.pair_query, pairs.pair_doc),
                    (query_indices, candidates[query_indices, ranks]),
                )
            ]
            fits = allowed.copy()
            fits[query_indices, ranks] = (
                scores[1] < lowest_positive(pairs, scores[0])[query_indices]
            )
            allowed = _filter(allowed, fits, "the reranker scores them as high as a positive")
        return choose(candidates, allowed, self.settings.keep, seed)


def may_be_negative(
    candidates: IntArray, known: KnownPositives, pool: DocumentPool
) -> NDArray[np.bool_]:
    """Whether candidates are in the pool, are not known positives, and have no copy earlier in
    their row: both ``[n, depth]``."""
    allowed = np.empty(candidates.shape, dtype=bool)
    for block in slices(len(candidates), max(1, CANDIDATES_AT_ONCE // candidates.shape[1])):
        query_indices, doc_rows = np.arange(block.start, block.stop)[:, None], candidates[block]
        in_pool = pool.holds(doc_rows) & ~known.contains(query_indices, doc_rows)
        allowed[block] = in_pool & first_of_copies(pool.group[doc_rows])
    return allowed


def first_of_copies(groups: IntArray) -> NDArray[np.bool_]:
    """False for a candidate whose text occurs earlier in its row: both ``[n, depth]``."""
    order = np.argsort(groups, axis=1, kind="stable")
    ordered = np.take_along_axis(groups, order, axis=1)
    is_first = np.empty(groups.shape, dtype=bool)
    repeats = np.diff(ordered, axis=1, prepend=ordered[:, :1] - 1) == 0
    np.put_along_axis(is_first, order, ~repeats, axis=1)
    return is_first


def lowest_positive(pairs: TrainingPairs, scores: FloatArray) -> NDArray[np.float32]:
    """Return the score of each query's worst positive, float32 ``[n]``, from scores of pairs."""
    return np.asarray(np.minimum.reduceat(scores, pairs.query_offsets[:-1]), dtype=np.float32)


def highest_allowed(positive: NDArray[np.float32], settings: MiningSettings) -> NDArray[np.float32]:
    """Return the highest allowed similarity of a negative to its query: float32 ``[n, 1]``.

    The margins are those of ``sentence_transformers.util.mine_hard_negatives``; a test compares
    both. That function cannot use OPERA's rankings, caches, shards or known positives.
    ``positive``, ``[n]``, is the similarity of each query's least similar positive.
    """
    limits: list[FloatArray] = [np.full(len(positive), np.inf, dtype=np.float32)]
    if settings.relative_margin is not None:
        limits.append(positive - np.abs(positive) * np.float32(settings.relative_margin))
    if settings.absolute_margin is not None:
        limits.append(positive - np.float32(settings.absolute_margin))
    if settings.max_score is not None:
        limits.append(np.full_like(positive, settings.max_score))
    return np.asarray(np.min(limits, axis=0)[:, None])


def _filter(allowed: BoolArray, fits: BoolArray, reason: str) -> NDArray[np.bool_]:
    total, removed = int(allowed.sum()), int((allowed & ~fits).sum())
    if removed:
        log.info("note: left out %d of %d mined candidates: %s", removed, total, reason)
    return np.asarray(allowed & fits)


def choose(candidates: IntArray, allowed: NDArray[np.bool_], keep: int, seed: int) -> DocumentLists:
    """Choose at most ``keep`` random allowed candidates ``[n, depth]`` per query."""
    rng, chosen = generator(seed, "mine"), allowed.copy()
    for is_chosen, count in zip(chosen, allowed.sum(axis=1).tolist(), strict=True):
        if count > keep:
            positions = np.flatnonzero(is_chosen)
            is_chosen[positions] = False
            is_chosen[positions[rng.choice(count, keep, replace=False)]] = True
    return DocumentLists.from_counts(chosen.sum(axis=1), candidates[chosen])
