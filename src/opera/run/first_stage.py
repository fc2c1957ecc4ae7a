"""The first stage of a reranker: BM25 or a model, which ranks all documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from opera.config.negatives import MiningSettings
from opera.core.errors import DataError
from opera.core.terminal import log
from opera.data import Mixture, RetrievalData
from opera.data.qrels import DocumentLists
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import Evaluation, KeywordSearch, evaluate_encoder
from opera.retrieval.locate import BM25, Model, model_title, run_keyword_weight
from opera.retrieval.measures import Measure
from opera.retrieval.prompts import with_data_prompt
from opera.training.documents import DocumentPool, KnownPositives
from opera.training.negatives import Miner, check_range, choose, may_be_negative


@dataclass(frozen=True)
class FirstStage:
    """What ranks all documents.

    Attributes:
        searches: BM25 over the data, or the encoder of a model.
        corpus_text: which text of a document it reads.
    """

    searches: KeywordSearch | Encoder
    corpus_text: CorpusText

    @classmethod
    def open(
        cls, spec: Model, data: Mixture, corpus_text: CorpusText, settings: Mapping[str, Any]
    ) -> Self:
        """Index the words of the data, or load a model with its settings of encoding.

        Raises:
            DataError: if the first stage is BM25, and the documents have no words.
        """
        if spec != BM25:
            if any(run_keyword_weight(spec, data_set) for data_set in data.data_sets):
                title = model_title(spec)
                log.info("note: the first stage is the model of %s alone, without BM25", title)
            settings = with_data_prompt(settings, data.joined, spec)
            return cls(open_encoder(spec, **settings), corpus_text)
        keywords = KeywordSearch.of(data, corpus_text, bm25=True)
        if keywords is None:
            raise DataError(
                f"{data.joined.title}: has no words for BM25; pass a model as --first-stage"
            )
        return cls(keywords, corpus_text)

    def evaluate(
        self, data: Mixture, split: str, measures: Sequence[str | Measure], depth: int
    ) -> Evaluation:
        """Measure the first stage, with rankings of ``depth`` documents or more."""
        if isinstance(self.searches, KeywordSearch):
            return self.searches.evaluate(data, split, measures, depth)
        return evaluate_encoder(self.searches, data, split, measures, self.corpus_text, depth=depth)

    def mine(self, data: RetrievalData, settings: MiningSettings, seed: int) -> DocumentLists:
        """Mine negatives of each training query, without its known positives.

        Raises:
            SettingError: if the range of ranks starts after the end of the corpus.
        """
        train = data.training_split()
        pairs = train.pairs()
        known = KnownPositives.of(data, train.query_rows, pairs)
        if not isinstance(self.searches, KeywordSearch):
            miner = Miner.of(self.searches, data, self.corpus_text, settings)
            return miner.mine(train.query_rows, pairs, known, seed)
        check_range(settings, len(data.corpus))
        first_rank, last_rank = settings.ranks
        queries = data.queries.texts(train.query_rows, "text")
        ranking = self.searches.indexes[data.fingerprint].search(queries, last_rank)
        candidates = ranking.doc_rows[:, first_rank - 1 :]
        pool = DocumentPool.of(data, self.corpus_text)
        allowed = may_be_negative(candidates, known, pool) & (candidates >= 0)
        return choose(candidates, np.asarray(allowed), settings.keep, seed)
