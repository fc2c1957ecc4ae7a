"""``opera.search``: a corpus searched for one query.

Importing this imports no torch; a search does where :mod:`opera.retrieval.light` knows no shorter way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opera.config.search_index import SearchIndex, checked_index
from opera.core.arguments import text, whole_number
from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.paths import expand_user
from opera.data import RetrievalData, load_data
from opera.data.checks import check_text
from opera.data.combined import one_set
from opera.retrieval.light import StaticModel, index_key, kept_index, note_index
from opera.retrieval.locate import MINILM, locate_model
from opera.retrieval.prompts import given_prompts, warn_of_prompts, with_data_prompt
from opera.retrieval.run_model import run_corpus_text


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
        index: ``exact``, or FAISS's ``hnsw`` or ``ivf`` (extra ``faiss``), which may miss some documents; how many is
            measured on the data's own queries, and logged.
        query_prompt: text before the query, empty for none; the default is the data's, or the model's own.
        document_prompt: text before each document, likewise.

    Returns:
        The documents, best first; fewer than ``top`` if the corpus is smaller.

    Raises:
        InputError: for an empty query, an index whose package is not installed, or other invalid input.
    """
    if not text(query, "query").strip():
        raise DataError("query: must not be empty")
    check_text("query", query)
    top, kind = whole_number(top, "top", 1), checked_index(index)
    model = expand_user(model, "model")
    loaded = one_set(load_data(data), "search")
    prompts = with_data_prompt(given_prompts(query_prompt, document_prompt), loaded, model)
    if kind == "exact":
        rows, scores = _ranked(loaded, query, model, top, prompts)
    else:
        rows, scores = _ranked_by_index(kind, loaded, query, model, top, prompts)
    columns = zip(loaded.corpus.ids(rows), scores, loaded.corpus.texts(rows), strict=True)
    return [FoundDocument(rank, *column) for rank, column in enumerate(columns, start=1)]


def _ranked(
    data: RetrievalData, query: str, model: str, top: int, prompts: dict[str, Any]
) -> tuple[IntArray, list[float]]:
    """Return rows of the best documents and their scores, by the short way where the index is kept."""
    depth, corpus_text = min(top, len(data.corpus)), run_corpus_text(model)
    static = None if model == MINILM else StaticModel.of(locate_model(model))
    key = static and index_key(static, data, corpus_text, prompts)
    if static and key:
        kept = kept_index(key, static, len(data.corpus))
        found = kept and kept.search(query, data.corpus, depth)
        if kept and found:
            warn_of_prompts(kept.prompts, model, **prompts)
            return found

    from opera.retrieval.encoder import open_encoder
    from opera.retrieval.nearest import exact_search

    encoder = open_encoder(model, **prompts)
    query_embeddings = encoder.encode([query], "query")
    vectors = encoder.encode_corpus(data, corpus_text)
    if static and key:
        kept = note_index(key, static, encoder, vectors)
        found = kept and kept.search(query, data.corpus, depth)
        if found:
            return found
    ranking = exact_search(query_embeddings, vectors, data.corpus, depth, encoder.device)
    return ranking.doc_rows[0], ranking.scores[0].tolist()


def _ranked_by_index(
    kind: SearchIndex, data: RetrievalData, query: str, model: str, top: int, prompts: dict[str, Any]
) -> tuple[IntArray, list[float]]:
    """Return rows of the documents that an approximate index finds, and their scores."""
    import numpy as np

    from opera.retrieval.approximate import ApproximateIndex
    from opera.retrieval.encoder import open_encoder

    encoder, depth = open_encoder(model, **prompts), min(top, len(data.corpus))
    index = ApproximateIndex(kind, encoder, data, run_corpus_text(model))
    ranking = index.search(encoder.encode([query], "query"), depth)
    index.note_recall(np.arange(len(data.queries)), depth)
    return ranking.doc_rows[0], ranking.scores[0].tolist()
