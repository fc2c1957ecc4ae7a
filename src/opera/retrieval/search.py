"""Exact nearest-neighbour search by cosine similarity, ties broken by document id."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from opera.core.arguments import text, whole_number
from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.paths import expand_user
from opera.data import RetrievalData, TextTable, load_data
from opera.data.checks import check_text
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, given_prompts, open_encoder, rows_digest
from opera.retrieval.measures import Ranking
from opera.retrieval.run_model import run_corpus_text

QUERY_CHUNK = 2048
CORPUS_CHUNK = 65_536
RANKING_FILE = "ranking.npz"


@dataclass(frozen=True)
class FoundDocument:
    """One document that a search returned.

    Attributes:
        rank: 1 for the best.
        id: id of the document.
        score: its cosine similarity to the query.
        text: its text, title in front.
    """

    rank: int
    id: str
    score: float
    text: str = field(repr=False)


def search(
    data: str | Path | RetrievalData,
    query: str,
    *,
    model: str | Path,
    top: int = 5,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> list[FoundDocument]:
    """Search a corpus for one query.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        query: what to search for.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        top: how many documents to return.
        query_prompt: text before the query, empty for none; the default is the model's own.
        document_prompt: text before each document, likewise.

    Returns:
        The documents, best first; fewer than ``top`` if the corpus is smaller.

    Raises:
        InputError: for an empty query, or other invalid input.
    """
    if not text(query, "query").strip():
        raise DataError("query: must not be empty")
    check_text("query", query)
    top = whole_number(top, "top", 1)
    model = expand_user(model, "model")
    loaded = load_data(data)
    encoder = open_encoder(model, **given_prompts(query_prompt, document_prompt))
    query_embeddings = encoder.encode([query], "query")
    document_embeddings = encoder.encode_corpus(loaded, run_corpus_text(model))
    ranking = exact_search(query_embeddings, document_embeddings, loaded.corpus, top, encoder.device)
    rows, scores = ranking.doc_rows[0], ranking.scores[0].tolist()
    columns = zip(loaded.corpus.ids(rows), scores, loaded.corpus.texts(rows), strict=True)
    return [FoundDocument(rank, *column) for rank, column in enumerate(columns, start=1)]


def search_corpus(
    encoder: Encoder, data: RetrievalData, query_rows: IntArray, depth: int, corpus_text: CorpusText = "title_text"
) -> Ranking:
    """Rank the corpus for some of the data's own queries. The ranking is cached on disk.

    Args:
        encoder: the model; if it uses no cache, neither does the search.
        data: the texts.
        query_rows: int ``[n]``, rows of the query table.
        depth: how many documents to keep per query.
        corpus_text: what of a document is encoded.
    """

    def rank() -> Ranking:
        query_embeddings = encoder.encode_queries(data, query_rows)
        document_embeddings = encoder.encode_corpus(data, corpus_text)
        return exact_search(query_embeddings, document_embeddings, data.corpus, depth, encoder.device)

    if not encoder.use_cache:
        return rank()
    key = (data.fingerprint, corpus_text, str(depth), rows_digest(query_rows))
    home = encoder.cached("rankings", *key, write=lambda folder: _save(folder / RANKING_FILE, rank()))
    with np.load(home / RANKING_FILE) as arrays:
        return Ranking(arrays["doc_rows"], arrays["scores"])


def exact_search(
    query_embeddings: NDArray[np.float32],
    document_embeddings: NDArray[np.float32],
    documents: TextTable,
    depth: int,
    device: str = "cpu",
) -> Ranking:
    """Rank all documents for each query by dot product and keep the best.

    Equal scores are ordered by descending document id, as in trec_eval.

    Args:
        query_embeddings: float32 ``[n, dimension]``, rows of length 1.
        document_embeddings: float32 ``[documents, dimension]``, rows of length 1; read in chunks, so it may be
            memory-mapped.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.

    Returns:
        A ranking of ``n`` rows and ``min(depth, documents)`` columns.
    """
    depth = min(depth, len(document_embeddings))
    tie_key = -documents.id_rank.astype(np.int64)
    parts = []
    for start in tqdm(
        range(0, len(query_embeddings), QUERY_CHUNK),
        desc="searching",
        unit=" chunks",
        disable=_hide_bar(query_embeddings, document_embeddings),
    ):
        block = torch.from_numpy(np.array(query_embeddings[start : start + QUERY_CHUNK])).to(device)
        docs = np.empty((len(block), 0), dtype=np.int64)
        scores = np.empty((len(block), 0), dtype=np.float32)
        for first in range(0, len(document_embeddings), CORPUS_CHUNK):
            chunk = torch.from_numpy(np.array(document_embeddings[first : first + CORPUS_CHUNK])).to(device)
            best_docs, best_scores = _best_of_chunk(block @ chunk.T, min(depth, len(chunk)), tie_key[first:])
            # Merge the best of this chunk with the best so far, and keep `depth` of both.
            docs = np.concatenate([docs, best_docs + first], axis=1)
            scores = np.concatenate([scores, best_scores], axis=1)
            order = np.lexsort((tie_key[docs], -scores), axis=-1)[:, :depth]
            docs, scores = np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)
        parts.append((docs, scores))
    return Ranking(
        np.concatenate([docs for docs, _ in parts]).astype(np.int32),
        np.concatenate([scores for _, scores in parts]).astype(np.float32),
    )


def _save(path: Path, ranking: Ranking) -> None:
    np.savez(path, doc_rows=ranking.doc_rows, scores=ranking.scores)


def _best_of_chunk(
    scores: torch.Tensor, depth: int, tie_key: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the best documents of one chunk and their scores, both ``[n, depth]``, ties broken by ``tie_key``."""
    values, indices = (part.cpu().numpy() for part in torch.topk(scores, depth))
    docs, best = indices.astype(np.int64), values.astype(np.float32)
    # topk breaks ties arbitrarily: redo the rows where more documents reach the lowest score than were kept.
    lowest = torch.from_numpy(best[:, -1:]).to(scores.device)
    for row in torch.nonzero((scores >= lowest).sum(dim=1) > depth).flatten().tolist():
        row_scores = scores[row].cpu().numpy()
        candidates = np.flatnonzero(row_scores >= best[row, -1])
        kept = candidates[np.lexsort((tie_key[candidates], -row_scores[candidates]))[:depth]]
        docs[row], best[row] = kept, row_scores[kept]
    return docs, best


def _hide_bar(query_embeddings: NDArray[np.float32], document_embeddings: NDArray[np.float32]) -> bool | None:
    """Hide the progress bar of a search of a few seconds; ``None`` shows it on a terminal only."""
    return True if len(query_embeddings) * len(document_embeddings) < 2e9 else None
