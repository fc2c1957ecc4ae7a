"""Rank a corpus for the queries of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opera.config.search_index import SearchIndex
from opera.core.arrays import IntArray
from opera.core.processes import everywhere, process_index
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.retrieval.approximate import ApproximateIndex, approximate_ranking
from opera.retrieval.encoder import Encoder, rows_digest
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import (
    NearestDocuments,
    empty_ranking,
    fill,
    own_tiles,
    query_parts,
    tile_of,
    tile_rows,
    with_bar,
)
from opera.retrieval.shared_rows import regrouped

RANKING_FILE = "ranking.npz"


def search_corpus(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    corpus_text: CorpusText = "title_text",
    index: SearchIndex = "exact",
) -> Ranking:
    """Rank the corpus for some of the data's own queries. The ranking is cached on disk. All processes call this.

    Args:
        encoder: the model; if it uses no cache, neither does the search.
        data: the texts.
        query_rows: int ``[n]``, rows of the query table.
        depth: how many documents to keep per query.
        corpus_text: what of a document is encoded.
        index: ``exact``, or an approximate index, whose ranking depends on it and is not cached: the index is.
    """
    if index != "exact":
        approximate = ApproximateIndex(index, encoder, data, corpus_text)
        return approximate_ranking(approximate, query_rows, min(depth, len(data.corpus)))

    def write(folder: Path) -> None:
        ranking = _rank(encoder, data, query_rows, depth, corpus_text)
        if process_index() == 0:
            np.savez(folder / RANKING_FILE, doc_rows=ranking.doc_rows, scores=ranking.scores)

    if not encoder.use_cache:
        return _rank(encoder, data, query_rows, depth, corpus_text)
    key = (data.fingerprint, corpus_text, str(depth), rows_digest(query_rows))
    home = encoder.cached("rankings", *key, write=write)
    with np.load(home / RANKING_FILE) as arrays:
        return Ranking(arrays["doc_rows"], arrays["scores"])


def _rank(encoder: Encoder, data: RetrievalData, query_rows: IntArray, depth: int, corpus_text: CorpusText) -> Ranking:
    """Rank the corpus: each process its own tiles. Embeddings that are not kept are searched as they are computed."""
    return rank_by_size(encoder, data, query_rows, depth, [encoder.dimension], corpus_text)[encoder.dimension]


def rank_by_size(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    sizes: Sequence[int],
    corpus_text: CorpusText = "title_text",
) -> dict[int, Ranking]:
    """Rank the corpus by the first dimensions of its embeddings, each number of them by itself, in one pass.

    Args:
        encoder: the model.
        data: the texts.
        query_rows: int ``[n]``, rows of the query table.
        depth: how many documents to keep per query.
        sizes: numbers of dimensions; what is left of an embedding is scaled to length 1.
        corpus_text: what of a document is encoded.
    """
    queries, count = encoder.encode_queries(data, query_rows), len(data.corpus)
    kept = encoder.encode_corpus(data, corpus_text) if encoder.keeps(count) else None
    starts = own_tiles(count, tile_rows(encoder.dimension, encoder.search_memory))
    depth, parts = min(depth, count), [slice(0, len(queries))]
    if kept is not None:  # what is not kept is seen once
        parts = query_parts(len(queries), sum(sizes), depth * len(sizes), encoder.search_memory)

    def tiles() -> Iterator[tuple[int, NDArray[np.float32]]]:
        if kept is not None:
            for first in with_bar(starts, len(queries) * count):
                yield first, tile_of(kept, first, starts)
        else:
            encoded = encoder.document_parts(data, corpus_text, slice(starts.start, starts.stop))
            yield from zip(starts, regrouped(encoded, starts.step), strict=True)

    whole = {size: empty_ranking(len(queries), depth) for size in sizes}
    for part in parts:
        found = {
            size: NearestDocuments(first_dimensions(queries[part], size), data.corpus, depth, encoder.device)
            for size in sizes
        }
        everywhere(partial(_look, found, tiles()))
        for size, documents in found.items():
            documents.add_of_other_processes()
            fill(whole[size], part, documents.ranking())
    return whole


def _look(found: dict[int, NearestDocuments], tiles: Iterable[tuple[int, NDArray[np.float32]]]) -> None:
    """Look through tiles, cut to each number of dimensions."""
    for first, tile in tiles:
        for size, nearest in found.items():
            nearest.add(first, first_dimensions(tile, size))


def first_dimensions(embeddings: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Cut unit embeddings ``[n, dimension]`` to their first ``size`` values, and scale them to length 1."""
    if size == embeddings.shape[1]:
        return embeddings
    cut = embeddings[:, :size]
    return np.asarray(cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12), dtype=np.float32)
