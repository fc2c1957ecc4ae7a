"""Mine hard negatives with a model, but for those that may be relevant without a label: margins, a
reranker's veto.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MiningSettings
from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.data import Qrels, RetrievalData
from opera.data.pairs import TrainingPairs
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, pair_similarities
from opera.retrieval.measures import Ranking
from opera.retrieval.reranker import Reranker
from opera.retrieval.search import search_corpus
from opera.training_set.documents import DocumentPool, KnownPositives
from opera.training_set.negatives import ListedNegatives, mine_hard_negatives

log = logging.getLogger("opera")

PairScorer = Callable[[IntArray, IntArray], NDArray[np.float32]]
"""Scores training queries ``[m]`` and corpus rows ``[m]``: float32 ``[m]``."""


class Margins(NamedTuple):
    """How far below the query's positives a candidate must stay to count as a negative.

    The meaning is that of ``sentence_transformers.util.mine_hard_negatives``; a query with several
    positives is compared with the least similar one. That function encodes texts itself, and cannot
    take our rankings, caches, shards or known positives of other splits, so the rule is computed
    here; a test compares both.

    Attributes:
        relative: drop a candidate above ``positive - relative * |positive|``.
        absolute: drop a candidate above ``positive - absolute``.
        max_score: drop a candidate above this similarity, whatever the positive's.
    """

    relative: float | None = None
    absolute: float | None = None
    max_score: float | None = None

    @property
    def any(self) -> bool:
        """Whether one of them is given."""
        return any(value is not None for value in self)

    def allow(self, similarity: FloatArray, positive: FloatArray) -> BoolArray:
        """Whether candidates stay: bool ``[n, depth]``.

        Args:
            similarity: float ``[n, depth]``, of each candidate.
            positive: float ``[n]``, of each query's least similar positive.
        """
        highest = np.full(len(positive), np.inf, dtype=np.float32)
        if self.relative is not None:
            highest = np.minimum(highest, positive - np.abs(positive) * np.float32(self.relative))
        if self.absolute is not None:
            highest = np.minimum(highest, positive - np.float32(self.absolute))
        if self.max_score is not None:
            highest = np.minimum(highest, np.float32(self.max_score))
        return np.asarray(similarity <= highest[:, None])


def lowest_positive(pairs: TrainingPairs, scores: FloatArray) -> NDArray[np.float32]:
    """Return the score of each query's worst positive, float32 ``[n]``, from those of the pairs
    ``[N]``.
    """
    return np.asarray(np.minimum.reduceat(scores, pairs.query_offsets[:-1]), dtype=np.float32)


@dataclass(frozen=True)
class Veto:
    """Drops mined candidates that are too close to their query's positives, and logs how many.

    Attributes:
        pairs: the training pairs.
        margins: by similarity.
        cosines: computes the similarity of the pairs under the model that mines, float32 ``[N]``.
        reranker: drops a candidate that it scores as high as the query's worst positive, or higher.
    """

    pairs: TrainingPairs
    margins: Margins
    cosines: Callable[[], NDArray[np.float32]]
    reranker: PairScorer | None

    def __call__(
        self, candidates: IntArray, allowed: BoolArray, similarity: FloatArray
    ) -> BoolArray:
        """Return which candidates stay: bool ``[n, depth]``.

        Args:
            candidates: int ``[n, depth]``, corpus rows.
            allowed: bool ``[n, depth]``, those to look at.
            similarity: float ``[n, depth]``, of each candidate.
        """
        if self.margins.any:
            left = allowed & self.margins.allow(
                similarity, lowest_positive(self.pairs, self.cosines())
            )
            _tell(allowed, left, "they are as similar to their query as the margins forbid")
            allowed = left
        if self.reranker is not None:
            least = lowest_positive(
                self.pairs, self.reranker(self.pairs.pair_query, self.pairs.pair_doc)
            )
            left, (query, rank) = allowed.copy(), np.nonzero(allowed)
            left[query, rank] = self.reranker(query, candidates[query, rank]) < least[query]
            _tell(allowed, left, "the reranker scores as high as a positive")
            allowed = left
        return allowed


def _tell(before: BoolArray, after: BoolArray, reason: str) -> None:
    if dropped := int(before.sum() - after.sum()):
        log.info("note: left out %d of %d mined candidates: %s", dropped, before.sum(), reason)


@dataclass(frozen=True)
class Miner:
    """A model and data to mine from.

    Attributes:
        encoder: ranks the corpus.
        data: the texts.
        corpus_text: what of a document is read.
        settings: ranks and margins.
        reranker: drops candidates that it scores as high as a positive.
    """

    encoder: Encoder
    data: RetrievalData
    corpus_text: CorpusText
    settings: MiningSettings
    reranker: Reranker | None = None

    def mine(self, qrels: Qrels, keep: int, seed: int) -> ListedNegatives:
        """Mine at most ``keep`` negatives of each judged query, all of whose judgements are
        positives.
        """
        ranks, pairs = self.settings.range, qrels.pairs()
        ranking = self.rank(qrels.query_rows, ranks[1])
        known, pool = (
            KnownPositives(pairs, len(self.data.corpus)),
            DocumentPool.of(self.data, self.corpus_text),
        )
        return mine_hard_negatives(
            ranking, known, ranks, keep, seed, pool, self.veto(qrels.query_rows, pairs)
        )

    def rank(self, query_rows: IntArray, depth: int) -> Ranking:
        """Rank the corpus for some queries, down to a depth, by the index that the settings
        name.
        """
        index = self.settings.index
        return search_corpus(self.encoder, self.data, query_rows, depth, self.corpus_text, index)

    def veto(self, query_rows: IntArray, pairs: TrainingPairs) -> Veto | None:
        """Return what drops candidates that may be relevant; ``None`` where neither margin nor
        reranker is given.
        """
        reranker = self.reranker

        def cosines() -> NDArray[np.float32]:
            queries = self.encoder.encode_queries(self.data, query_rows)
            return pair_similarities(
                pairs, queries, self.encoder.encode_corpus(self.data, self.corpus_text)
            )

        def scored(queries: IntArray, doc_rows: IntArray) -> NDArray[np.float32]:
            assert reranker is not None
            return reranker.score_pairs(
                self.data, np.asarray(query_rows)[queries], doc_rows, self.corpus_text
            )

        margins = Margins(
            self.settings.relative_margin,
            self.settings.absolute_margin,
            self.settings.max_score,
        )
        if reranker is None and not margins.any:
            return None
        return Veto(pairs, margins, cosines, None if reranker is None else scored)
