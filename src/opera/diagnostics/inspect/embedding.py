"""A data set as a model embeds it: for searches, and for the scores of pairs, which may go without prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.data import Qrels, RetrievalData, TextTable
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import open_encoder
from opera.retrieval.locate import run_corpus_text
from opera.retrieval.prompts import with_data_prompt
from opera.training_set.document_pool import DocumentPool
from opera.training_set.pretrained_scores import pair_encoder


@dataclass(frozen=True)
class EmbeddedData:
    """A data set with the embeddings of its documents and of the judged queries of all splits.

    Attributes:
        data: the data set.
        pool: the documents that have a text.
        judged_rows: int ``[J]``, ascending, rows of the judged queries.
        judged: float32 ``[J, dimension]``, their embeddings, rows of length 1.
        documents: float32 ``[documents, dimension]``, rows of length 1.
        pair_judged: as ``judged``, for the scores of pairs.
        pair_documents: as ``documents``, for the scores of pairs.
        device: where the model computed them.
    """

    data: RetrievalData
    pool: DocumentPool
    judged_rows: NDArray[np.integer]
    judged: NDArray[np.float32]
    documents: Vectors
    pair_judged: NDArray[np.float32]
    pair_documents: Vectors
    device: str

    def queries(self, qrels: Qrels) -> NDArray[np.float32]:
        """Return the embeddings of the queries of ``qrels``: float32 ``[queries, dimension]``."""
        return np.asarray(self.judged[np.searchsorted(self.judged_rows, qrels.query_rows)])

    def pair_queries(self, qrels: Qrels) -> NDArray[np.float32]:
        """Return the same for the scores of pairs."""
        return np.asarray(self.pair_judged[np.searchsorted(self.judged_rows, qrels.query_rows)])

    def judged_queries(self) -> TextTable:
        """Return the judged queries."""
        return self.data.queries.select(self.judged_rows)


def embed(data: RetrievalData, model: str | Path, prompts: Mapping[str, Any]) -> EmbeddedData:
    """Encode the corpus, and the judged queries of all splits once; twice where pairs go without the prompts.

    Args:
        data: the data set.
        model: what the user passed.
        prompts: those that the user gave.
    """
    encoder, corpus_text = (
        open_encoder(model, **with_data_prompt(prompts, data, model)),
        run_corpus_text(model),
    )
    of_pairs = pair_encoder(encoder, model, prompts)
    judged_rows = np.unique(np.concatenate([qrels.query_rows for qrels in data.splits.values()]))
    documents: Vectors = encoder.encode_corpus(data, corpus_text)
    judged = np.asarray(encoder.encode_queries(data, judged_rows))
    pair_judged, pair_documents = judged, documents
    if of_pairs.prompts["query"] != encoder.prompts["query"]:
        pair_judged = np.asarray(of_pairs.encode_queries(data, judged_rows))
    if of_pairs.prompts["document"] != encoder.prompts["document"]:
        pair_documents = of_pairs.encode_corpus(data, corpus_text)
    return EmbeddedData(
        data=data,
        pool=DocumentPool.of(data, corpus_text),
        judged_rows=judged_rows,
        judged=judged,
        documents=documents,
        pair_judged=pair_judged,
        pair_documents=pair_documents,
        device=encoder.device,
    )
