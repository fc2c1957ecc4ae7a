"""Exact nearest documents by cosine similarity, ties broken by document id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from opera.core.arrays import IntArray
from opera.core.files import make_once
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, rows_digest
from opera.retrieval.measures import Ranking

QUERY_CHUNK = 2048
CORPUS_CHUNK = 65_536


def exact_search(
    queries: NDArray[np.float32],
    corpus: NDArray[np.float32],
    table: TextTable,
    depth: int,
    device: str = "cpu",
) -> Ranking:
    """Rank the corpus for each query and keep the best.

    Equal scores go in descending order of document id, as trec_eval orders them.

    Args:
        queries: float32 ``[n, dimension]``, rows of length 1.
        corpus: float32 ``[documents, dimension]``, rows of length 1; read chunk by chunk, so it may be memory-mapped.
        table: the corpus, for its ids.
        depth: how many documents to keep.
        device: where to multiply.

    Returns:
        A ranking of ``n`` rows and ``min(depth, documents)`` columns.
    """
    depth = min(depth, len(corpus))
    tie_place = -table.id_order.astype(np.int64)
    parts = []
    for start in tqdm(
        range(0, len(queries), QUERY_CHUNK),
        desc="searching",
        unit=" chunks",
        disable=_no_bar(queries, corpus),
    ):
        block = torch.from_numpy(np.array(queries[start : start + QUERY_CHUNK])).to(device)
        docs = np.empty((len(block), 0), dtype=np.int64)
        scores = np.empty((len(block), 0), dtype=np.float32)
        for first in range(0, len(corpus), CORPUS_CHUNK):
            chunk = torch.from_numpy(np.array(corpus[first : first + CORPUS_CHUNK])).to(device)
            found_docs, found_scores = _best_of_chunk(block @ chunk.T, min(depth, len(chunk)), tie_place[first:])
            docs = np.concatenate([docs, found_docs + first], axis=1)
            scores = np.concatenate([scores, found_scores], axis=1)
            order = np.lexsort((tie_place[docs], -scores), axis=-1)[:, :depth]
            docs, scores = np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)
        parts.append((docs, scores))
    return Ranking(
        np.concatenate([docs for docs, _ in parts]).astype(np.int32),
        np.concatenate([scores for _, scores in parts]).astype(np.float32),
    )


def search_corpus(
    encoder: Encoder, data: RetrievalData, query_rows: IntArray, depth: int, choice: CorpusText = "title_text"
) -> Ranking:
    """Rank a corpus for some of the data's own queries; from the cache where it is there.

    Args:
        encoder: the model; one that uses no cache searches anew.
        data: where the texts are.
        query_rows: int ``[n]``, rows of the query table.
        depth: how many documents to keep.
        choice: what of a document is encoded.
    """

    def search() -> Ranking:
        vectors = encoder.queries(data, query_rows), encoder.corpus(data, choice)
        return exact_search(*vectors, data.corpus, depth, encoder.device)

    path = encoder.cache_file("rankings", data.fingerprint, choice, str(depth), rows_digest(query_rows), suffix=".npz")
    if path is None:
        return search()
    make_once(path, lambda temporary: _save(temporary, search()))
    with np.load(path) as arrays:
        return Ranking(arrays["doc_rows"], arrays["scores"])


def _save(path: Path, ranking: Ranking) -> None:
    with path.open("wb") as file:
        np.savez(file, doc_rows=ranking.doc_rows, scores=ranking.scores)


def _best_of_chunk(
    scores: torch.Tensor, depth: int, tie_place: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Take the best of one chunk, minding ties with the last one taken."""
    values, indices = (part.cpu().numpy() for part in torch.topk(scores, depth))
    docs, best = indices.astype(np.int64), values.astype(np.float32)
    lowest = torch.from_numpy(best[:, -1:]).to(scores.device)
    for row in torch.nonzero((scores >= lowest).sum(dim=1) > depth).flatten().tolist():
        line = scores[row].cpu().numpy()
        candidates = np.flatnonzero(line >= best[row, -1])
        chosen = candidates[np.lexsort((tie_place[candidates], -line[candidates]))[:depth]]
        docs[row], best[row] = chosen, line[chosen]
    return docs, best


def _no_bar(queries: NDArray[np.float32], corpus: NDArray[np.float32]) -> bool | None:
    """Hide the bar where the search takes less than a few seconds; ``None`` leaves it to the terminal."""
    return True if len(queries) * len(corpus) < 2e9 else None
