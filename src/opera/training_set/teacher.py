"""A teacher's scores of training pairs and negatives, which ``opera score --reranker`` writes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.data import Qrels, RetrievalData
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, open_encoder, pair_similarities
from opera.retrieval.locate import run_corpus_text
from opera.retrieval.prompts import with_data_prompt
from opera.retrieval.reranker import open_reranker
from opera.training_set.document_pool import DocumentPool
from opera.training_set.export_inputs import ScoreInputs
from opera.training_set.known_positives import KnownPositives
from opera.training_set.miner import Miner
from opera.training_set.negatives import ListedNegatives, check_range, given_negatives
from opera.training_set.written import write_jsonl, write_table

log = logging.getLogger("opera")


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs with a teacher's scores.

    Attributes:
        data: the texts.
        pairs: the training pairs, and negatives with grade 0.
        scores: float32 ``[M]``.
    """

    data: RetrievalData
    pairs: Qrels
    scores: NDArray[np.float32]

    @property
    def table(self) -> pa.Table:
        """A row per pair: ``query_id``, ``doc_id``, ``score``."""
        columns = {
            "query_id": self.data.queries.id_column(self.pairs.query_rows[self.pairs.query_index]),
            "doc_id": self.data.corpus.id_column(self.pairs.doc_rows),
            "score": self.scores,
        }
        return pa.table(columns)

    def write(self, path: Path) -> None:
        """Write the scores: ``.jsonl`` as FlagEmbedding reads them, with texts; ``.parquet`` and ``.tsv`` by ids."""
        if path.suffix == ".jsonl":
            write_jsonl(path, self._flagembedding_records())
        else:
            write_table(path, self.table)

    def _flagembedding_records(self) -> Iterator[dict[str, Any]]:
        pairs, corpus = self.pairs, self.data.corpus
        for at, query in enumerate(self.data.queries.texts_by_turns(pairs.query_rows)):
            part = slice(*pairs.offsets[at : at + 2])
            rows, scores = pairs.doc_rows[part], self.scores[part]
            kinds = {"pos": pairs.grades[part] > 0, "neg": pairs.grades[part] <= 0}
            texts = {kind: corpus.texts(rows[chosen]) for kind, chosen in kinds.items()}
            yield {
                "query": query,
                **texts,
                **{f"{kind}_scores": scores[chosen].tolist() for kind, chosen in kinds.items()},
            }


def score_by_teacher(
    inputs: ScoreInputs, data: RetrievalData, qrels: Qrels, prompts: Mapping[str, Any], seed: int
) -> ScoredPairs:
    """Let a reranker, or a model by its cosine, score training pairs and negatives.

    Args:
        inputs: which teacher, and which negatives.
        data: the texts.
        qrels: the training pairs.
        prompts: of the reranker, or of the model where there is none.
        seed: of the choice among mined negatives.
    """
    if isinstance(inputs.negatives, int):
        check_range(inputs.mining.mining_range, len(data.corpus))
    reranker = None
    if inputs.reranker is not None:
        reranker = open_reranker(inputs.reranker, **prompts, max_length=inputs.max_length)
    encoder = None
    if inputs.model is not None:
        encoder = open_encoder(
            inputs.model, **with_data_prompt({} if reranker else prompts, data, inputs.model)
        )
    corpus_text: CorpusText = (
        "title_text" if inputs.model is None else run_corpus_text(inputs.model)
    )
    pairs = _with_negatives(qrels, _negatives(inputs, data, qrels, encoder, corpus_text, seed))
    if reranker is not None:
        scores = reranker.score_pairs(
            data, pairs.query_rows[pairs.query_index], pairs.doc_rows, corpus_text
        )
    else:
        assert encoder is not None
        queries, documents = (
            encoder.encode_queries(data, pairs.query_rows),
            encoder.encode_corpus(data, corpus_text),
        )
        scores = pair_similarities(pairs.pairs(), queries, documents)
    return ScoredPairs(data, pairs, scores)


def _negatives(
    inputs: ScoreInputs,
    data: RetrievalData,
    qrels: Qrels,
    encoder: Encoder | None,
    corpus_text: CorpusText,
    seed: int,
) -> ListedNegatives | None:
    if isinstance(inputs.negatives, int):
        assert encoder is not None
        return Miner(encoder, data, corpus_text, inputs.mining).mine(qrels, inputs.negatives, seed)
    if inputs.negatives is None and data.given_negatives is None:
        log.info(
            "note: the data hold no negatives, so only the training pairs are scored; mine some with negatives=N"
        )
        return None
    known, pool = (
        KnownPositives(qrels.pairs(), len(data.corpus)),
        DocumentPool.of(data, corpus_text),
    )
    return given_negatives(data, qrels.query_rows, known, pool)


def _with_negatives(qrels: Qrels, negatives: ListedNegatives | None) -> Qrels:
    """Return the pairs that a teacher scores: the training pairs, and the negatives with grade 0."""
    if negatives is None or len(negatives.doc_rows) == 0:
        return qrels
    query = np.repeat(qrels.query_rows, np.diff(negatives.offsets))
    query, doc = np.unique(np.stack([query, negatives.doc_rows]), axis=1)
    return qrels.union(Qrels.from_arrays(query, doc, np.zeros(len(doc), dtype=np.int32)))
