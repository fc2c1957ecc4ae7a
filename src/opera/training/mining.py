"""Mine hard negatives with a model.

Margins, or a reranker, leave out documents that may be relevant without a label. The module imports
torch only to mine, because checks of a run do not need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MiningSettings
from opera.core.arrays import BoolArray, FloatArray, IntArray, slices
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.terminal import counted, log
from opera.data import RetrievalData
from opera.data.pairs import TrainingPairs
from opera.data.qrels import DocumentLists
from opera.data.texts import CorpusText
from opera.retrieval.measures import Ranking
from opera.training.documents import DocumentPool, KnownPositives

if TYPE_CHECKING:
    from opera.retrieval.encoder import Encoder
    from opera.retrieval.reranker import Reranker

CHUNK_QUERIES = 8_192


def check_range(settings: MiningSettings, n_docs: int) -> None:
    """Check that the range of ranks starts within the corpus.

    Raises:
        SettingError: with the range and the size of the corpus.
    """
    first, last = settings.ranks
    if first > n_docs:
        raise SettingError(
            f"range={first}:{last} starts after the end of the corpus "
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

        (first, last), data, text = self.settings.ranks, self.data, self.corpus_text
        check_range(self.settings, len(data.corpus))
        ranking = self.rank(query_rows, last)
        candidates = ranking.doc_rows[:, first - 1 : last]
        allowed = may_be_negative(candidates, known, DocumentPool.of(data, text))
        allowed &= first_of_copies(data.document_group[candidates])
        margins = (self.settings.relative_margin, self.settings.absolute_margin)
        if any(value is not None for value in (*margins, self.settings.max_score)):
            queries = self.encoder.encode_queries(data, query_rows)
            documents = self.encoder.encode_corpus(data, text)
            positive = lowest_positive(pairs, pair_similarities(pairs, queries, documents))
            fits = ranking.scores[:, first - 1 : last] <= highest_allowed(positive, self.settings)
            allowed = _filter(allowed, fits, "too similar to the query for the margins")
        if self.reranker is not None:
            query, rank = np.nonzero(allowed)
            scores = [
                self.reranker.score_pairs(data, query_rows[queries], documents, text)
                for queries, documents in (
                    (pairs.pair_query, pairs.pair_doc),
                    (query, candidates[query, rank]),
                )
            ]
            fits = allowed.copy()
            fits[query, rank] = scores[1] < lowest_positive(pairs, scores[0])[query]
            allowed = _filter(allowed, fits, "the reranker scores them as high as a positive")
        return choose(candidates, allowed, self.settings.keep, seed)


def may_be_negative(
    candidates: IntArray, known: KnownPositives, pool: DocumentPool
) -> NDArray[np.bool_]:
    """Whether candidates are in the pool and not known positives: both ``[n, depth]``."""
    allowed = np.empty(candidates.shape, dtype=bool)
    for queries in slices(len(candidates), CHUNK_QUERIES):
        numbers, chunk = np.arange(queries.start, queries.stop)[:, None], candidates[queries]
        allowed[queries] = pool.holds(chunk) & ~known.contains(numbers, chunk)
    return allowed


def first_of_copies(groups: IntArray) -> NDArray[np.bool_]:
    """False for a candidate whose text occurs earlier in its row: both ``[n, depth]``."""
    order = np.argsort(groups, axis=1, kind="stable")
    ordered = np.take_along_axis(groups, order, axis=1)
    first = np.empty(groups.shape, dtype=bool)
    repeats = np.diff(ordered, axis=1, prepend=ordered[:, :1] - 1) == 0
    np.put_along_axis(first, order, ~repeats, axis=1)
    return first


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
    for row, count in zip(chosen, allowed.sum(axis=1).tolist(), strict=True):
        if count > keep:
            places = np.flatnonzero(row)
            row[places] = False
            row[places[rng.choice(count, keep, replace=False)]] = True
    return DocumentLists.from_counts(chosen.sum(axis=1), candidates[chosen])
