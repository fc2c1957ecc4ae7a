"""Mine hard negatives with a model, for the commands that write them and for training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import NegativeSettings
from opera.core.arrays import IntArray
from opera.data import Qrels, RetrievalData
from opera.data.pairs import TrainingPairs
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, pair_similarities
from opera.retrieval.measures import Ranking
from opera.retrieval.reranker import Reranker
from opera.retrieval.search import search_corpus
from opera.training_set.document_pool import DocumentPool
from opera.training_set.false_negatives import Margins, Veto
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import ListedNegatives, mine_hard_negatives


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
    settings: NegativeSettings
    reranker: Reranker | None = None

    def mine(self, qrels: Qrels, keep: int, seed: int) -> ListedNegatives:
        """Mine at most ``keep`` negatives of each judged query, all of whose judgements are positives."""
        ranks, pairs = self.settings.mining_range, qrels.pairs()
        ranking = self.rank(qrels.query_rows, ranks[1])
        known, pool = (
            KnownPositives(pairs, len(self.data.corpus)),
            DocumentPool.of(self.data, self.corpus_text),
        )
        return mine_hard_negatives(
            ranking, known, ranks, keep, seed, pool, self.veto(qrels.query_rows, pairs)
        )

    def rank(self, query_rows: IntArray, depth: int) -> Ranking:
        """Rank the corpus for some queries, down to a depth, by the index that the settings name."""
        index = self.settings.search_index
        return search_corpus(self.encoder, self.data, query_rows, depth, self.corpus_text, index)

    def veto(self, query_rows: IntArray, pairs: TrainingPairs) -> Veto | None:
        """Return what drops candidates that may be relevant; ``None`` where neither margin nor reranker is given."""
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
            self.settings.mining_relative_margin,
            self.settings.mining_absolute_margin,
            self.settings.mining_max_score,
        )
        if reranker is None and not margins.any:
            return None
        return Veto(pairs, margins, cosines, None if reranker is None else scored)
