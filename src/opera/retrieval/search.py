"""Search a corpus: for the queries of a data set, and ``opera.search`` for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from opera.config.search_index import SearchIndex, checked_index
from opera.core.arguments import text, whole_number
from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.paths import expand_user
from opera.core.processes import everywhere, own_share, process_index
from opera.data import RetrievalData, load_data
from opera.data.checks import check_text
from opera.data.combined import one_set
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, open_encoder, rows_digest
from opera.retrieval.locate import run_corpus_text
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import TILE, NearestDocuments, exact_search, first_dimensions, tiles
from opera.retrieval.prompts import given_prompts, with_data_prompt

RANKING_FILE = "ranking.npz"


def rank_by_size(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    sizes: Sequence[int],
    corpus_text: CorpusText = "title_text",
) -> dict[int, Ranking]:
    """Rank the corpus by the first dimensions of its embeddings, each number of them by itself.

    Each process looks through its own rows, and all call this. Embeddings that are not kept are
    searched as they are computed.
    """
    queries, corpus = encoder.encode_queries(data, query_rows)[:], data.corpus
    if encoder.use_cache:
        documents = encoder.encode_corpus(data, corpus_text)
        parts = tiles(documents, own_share(len(corpus), TILE), len(queries))
    else:
        parts = encoder.document_parts(data, corpus_text)
    found = {
        size: NearestDocuments(first_dimensions(queries, size), corpus, depth, encoder.device)
        for size in sizes
    }

    def look() -> None:
        for first, tile in parts:
            for size, nearest in found.items():
                nearest.add(first, first_dimensions(tile, size))

    everywhere(look)
    for nearest in found.values():
        nearest.add_of_other_processes()
    return {size: nearest.ranking() for size, nearest in found.items()}


def search_corpus(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    corpus_text: CorpusText = "title_text",
    index: SearchIndex = "exact",
) -> Ranking:
    """Rank the corpus for some of the data's own queries; all processes call this.

    An exact ranking is cached on disk, if embeddings are; of an approximate index, the index is.
    """
    if index != "exact":
        from opera.retrieval.approximate import ApproximateIndex  # needs FAISS

        depth = min(depth, len(data.corpus))
        return ApproximateIndex(index, encoder, data, corpus_text).rank(query_rows, depth)

    def rank() -> Ranking:
        size = encoder.dimension
        return rank_by_size(encoder, data, query_rows, depth, [size], corpus_text)[size]

    def write(folder: Path) -> None:
        ranking = rank()
        if process_index() == 0:
            np.savez(folder / RANKING_FILE, doc_rows=ranking.doc_rows, scores=ranking.scores)

    if not encoder.use_cache:
        return rank()
    key = (data.fingerprint, corpus_text, str(depth), rows_digest(query_rows))
    with np.load(encoder.cached("rankings", *key, write=write) / RANKING_FILE) as arrays:
        return Ranking(arrays["doc_rows"], arrays["scores"])


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
    index: str = "exact",
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> list[FoundDocument]:
    """Search a corpus for one query.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        query: what to search for.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        top: how many documents to return.
        index: ``exact``, or FAISS's ``hnsw`` or ``ivf`` (extra ``faiss``), which may miss some
            documents; how many is measured on the data's own queries, and logged.
        query_prompt: text before the query, empty for none; the default is the data's, or the
            model's own.
        document_prompt: text before each document, in the same way.

    Returns:
        The documents, best first; fewer than ``top`` if the corpus is smaller.

    Raises:
        InputError: for an empty query, an index whose package is not installed, or other invalid
            input.
    """
    if not text(query, "query").strip():
        raise DataError("query: must not be empty")
    check_text("query", query)
    top, kind = whole_number(top, "top", 1), checked_index(index)
    model = expand_user(model, "model")
    loaded = one_set(load_data(data), "search")
    prompts = with_data_prompt(given_prompts(query_prompt, document_prompt), loaded, model)
    encoder, corpus_text = open_encoder(model, **prompts), run_corpus_text(model)
    embedding, depth = encoder.encode([query], "query"), min(top, len(loaded.corpus))
    if kind == "exact":
        documents = encoder.encode_corpus(loaded, corpus_text)
        ranking = exact_search(embedding, documents, loaded.corpus, depth, encoder.device)
    else:
        from opera.retrieval.approximate import ApproximateIndex

        ranking = ApproximateIndex(kind, encoder, loaded, corpus_text).search(embedding, depth)
    rows, scores = ranking.doc_rows[0], ranking.scores[0].tolist()
    columns = zip(loaded.corpus.ids(rows), scores, loaded.corpus.texts(rows), strict=True)
    return [FoundDocument(rank, *column) for rank, column in enumerate(columns, start=1)]
