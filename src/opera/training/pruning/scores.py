"""What the model thinks of the pairs of a data set before it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from opera.core.settings import Settings
from opera.encoder.embeddings import Vectors
from opera.methods import Method, PairScores
from opera.retrieval.encoder import Encoder
from opera.training.pruning.pair_rows import PairRows
from opera.training_set.document_pool import DocumentPool
from opera.training_set.pretrained_scores import scores_with_cbs

Prompts = str | Mapping[str, Any] | None


@dataclass(frozen=True)
class PairEmbeddings:
    """The untrained model's embeddings of a data set's distinct texts.

    Attributes:
        queries: float32 ``[n, dimension]``, of length 1.
        documents: float32 ``[documents, dimension]``, of length 1.
    """

    queries: Vectors
    documents: Vectors

    @classmethod
    def of(cls, model: SentenceTransformer, rows: PairRows, prompts: Prompts) -> PairEmbeddings:
        """Encode the texts, or read them from the cache; with the prompts of training, in the model's own lengths."""
        trains = model.training
        encoder = Encoder(model)
        query, document = (prompt_of(prompts, rows.name, column) for column in rows.columns[:2])
        encoder.prompts = {"query": query, "document": document}
        queries = encoder.encode_queries(rows.data, np.arange(len(rows.data.queries)))
        documents = encoder.encode_corpus(rows.data, "text")
        model.train(trains)
        return cls(queries, documents)

    def scores(
        self,
        rows: PairRows,
        method: type[Method[Any]],
        settings: Settings,
        temperature: float,
        size: int,
        seed: int,
    ) -> PairScores:
        """Score the pairs for a method; ``size`` is the number of documents in a batch."""
        pool = DocumentPool.of(rows.data, "text")
        cbs_pool = method.cbs_pool_size(settings)
        return scores_with_cbs(
            rows.pairs, self.queries, self.documents, temperature, size, seed, None, pool, cbs_pool
        )[0]


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt that sentence-transformers' collator puts before a column of a data set; empty for none.

    Args:
        prompts: ``args.prompts``: one for all columns, by column, by data set, or by data set and column.
        name: of the data set, where there are several.
        column: name of the column.
    """
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        found = prompts.get(column)
        return found if isinstance(found, str) else ""
    return prompts or ""
