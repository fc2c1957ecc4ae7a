"""Mine hard negatives with a model, but for those that may be relevant without a label: margins, a
reranker's veto. Loads torch only to mine, since checks of a run need none.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MiningSettings
from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.data import RetrievalData
from opera.data.pairs import TrainingPairs
from opera.data.texts import CorpusText
from opera.retrieval.measures import Ranking
from opera.training_set.documents import DocumentPool, KnownPositives, Lists

if TYPE_CHECKING:
    from opera.retrieval.encoder import Encoder
    from opera.retrieval.reranker import Reranker

log = logging.getLogger("opera")

CHUNK_QUERIES = 8_192


def check_range(ranks: tuple[int, int], n_docs: int) -> None:
    """Refuse a rank range that starts past the corpus.

    Raises:
        SettingError: with the numbers.
    """
    if ranks[0] > n_docs:
        raise SettingError(
            f"range={ranks[0]}:{ranks[1]} starts past the end of the corpus ({n_docs} documents)"
        )


@dataclass(frozen=True)
class Miner:
    """A model and data to mine from.

    Attributes:
        encoder: ranks the corpus.
        data: the texts.
        corpus_text: what of a document is read.
        settings: ranks, margins and index.
        reranker: leaves out candidates that it scores as high as the query's worst positive.
    """

    encoder: Encoder
    data: RetrievalData
    corpus_text: CorpusText
    settings: MiningSettings
    reranker: Reranker | None = None

    def rank(self, query_rows: IntArray, depth: int) -> Ranking:
        """Rank the corpus for some queries, down to a depth."""
        from opera.retrieval.search import search_corpus

        text, index = self.corpus_text, self.settings.index
        return search_corpus(self.encoder, self.data, query_rows, depth, text, index)

    def mine(
        self,
        query_rows: IntArray,
        pairs: TrainingPairs,
        known: KnownPositives,
        keep: int,
        seed: int,
    ) -> Lists:
        """Keep the documents at ranks LO to HI of each training query that are not its positives.

        Positives, copies and documents without a text count as ranks. If more than ``keep``
        documents are left, a random ``keep`` of them stay (the release).

        Args:
            query_rows: int ``[n]``, the query table's row of each training query.
            pairs: the training pairs, whose least similar positives the margins start from.
            known: the positives.
            keep: maximum negatives per query.
            seed: seed of the random choice.
        """
        from opera.retrieval.encoder import pair_similarities

        (first, last), data, text = self.settings.range, self.data, self.corpus_text
        check_range((first, last), len(data.corpus))
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
            reason = "they are as similar to their query as the margins forbid"
            allowed = _left(allowed, fits, reason)
        if self.reranker is not None:
            rows = np.asarray(query_rows)
            query, rank = np.nonzero(allowed)
            scores = [
                self.reranker.score_pairs(data, rows[queries], documents, text)
                for queries, documents in (
                    (pairs.pair_query, pairs.pair_doc),
                    (query, candidates[query, rank]),
                )
            ]
            fits = allowed.copy()
            fits[query, rank] = scores[1] < lowest_positive(pairs, scores[0])[query]
            allowed = _left(allowed, fits, "the reranker scores as high as a positive")
        return choose(candidates, allowed, keep, seed)


def may_be_negative(
    candidates: IntArray, known: KnownPositives, pool: DocumentPool
) -> NDArray[np.bool_]:
    """Whether candidates ``[n, depth]`` are in the pool and no known positives: bool, likewise."""
    allowed = np.empty(candidates.shape, dtype=bool)
    for start in range(0, len(candidates), CHUNK_QUERIES):
        some = candidates[start : start + CHUNK_QUERIES]
        positive = known.contains(np.arange(start, start + len(some))[:, None], some)
        allowed[start : start + len(some)] = pool.holds(some) & ~positive
    return allowed


def first_of_copies(groups: IntArray) -> NDArray[np.bool_]:
    """Whether each place of a row ``[n, depth]`` is the first with its text: bool, likewise."""
    if groups.size == 0:
        return np.ones(groups.shape, dtype=bool)
    order = np.argsort(groups, axis=1, kind="stable")
    ordered = np.take_along_axis(groups, order, axis=1)
    first = np.empty(groups.shape, dtype=bool)
    repeats = np.diff(ordered, axis=1, prepend=ordered[:, :1] - 1) == 0
    np.put_along_axis(first, order, ~repeats, axis=1)
    return first


def lowest_positive(pairs: TrainingPairs, scores: FloatArray) -> NDArray[np.float32]:
    """Return the score of each query's worst positive, float32 ``[n]``, from those of the pairs."""
    return np.asarray(np.minimum.reduceat(scores, pairs.query_offsets[:-1]), dtype=np.float32)


def highest_allowed(positive: NDArray[np.float32], settings: MiningSettings) -> NDArray[np.float32]:
    """How similar to its query a negative may be at most: float32 ``[n, 1]``.

    The margins mean what they mean in ``sentence_transformers.util.mine_hard_negatives``, which
    encodes texts itself and cannot take our rankings, caches, shards or known positives; a test
    compares both. ``positive``, ``[n]``, is each query's least similar positive.
    """
    limits: list[FloatArray] = [np.full(len(positive), np.inf, dtype=np.float32)]
    if settings.relative_margin is not None:
        limits.append(positive - np.abs(positive) * np.float32(settings.relative_margin))
    if settings.absolute_margin is not None:
        limits.append(positive - np.float32(settings.absolute_margin))
    if settings.max_score is not None:
        limits.append(np.full_like(positive, settings.max_score))
    return np.asarray(np.min(limits, axis=0)[:, None])


def _left(allowed: BoolArray, fits: BoolArray, reason: str) -> NDArray[np.bool_]:
    left = np.asarray(allowed & fits)
    before, after = int(allowed.sum()), int(left.sum())
    if before > after:
        log.info("note: left out %d of %d mined candidates: %s", before - after, before, reason)
    return left


def choose(candidates: IntArray, allowed: NDArray[np.bool_], keep: int, seed: int) -> Lists:
    """Keep a random ``keep`` of the allowed candidates ``[n, depth]`` of each query."""
    rng, chosen = generator(seed, "mine"), allowed.copy()
    for row, count in zip(chosen, allowed.sum(axis=1).tolist(), strict=True):
        if count > keep:
            left = np.flatnonzero(row)
            row[left] = False
            row[left[rng.choice(count, keep, replace=False)]] = True
    return Lists.from_counts(chosen.sum(axis=1), candidates[chosen])
