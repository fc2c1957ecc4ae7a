"""``opera.search``: a corpus searched for one query. Only a search imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from opera.config.search_index import checked_index
from opera.core.arguments import text, whole_number
from opera.core.errors import DataError
from opera.core.paths import expand_user
from opera.data import RetrievalData, load_data
from opera.data.checks import check_text
from opera.data.combined import one_set
from opera.retrieval.locate import locate_model, run_corpus_text
from opera.retrieval.prompts import given_prompts, with_data_prompt


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
    locate_model(model)

    from opera.retrieval.encoder import open_encoder
    from opera.retrieval.search import exact_search

    encoder, corpus_text, depth = (
        open_encoder(model, **prompts),
        run_corpus_text(model),
        min(top, len(loaded.corpus)),
    )
    embedding = encoder.encode([query], "query")
    if kind == "exact":
        documents = encoder.encode_corpus(loaded, corpus_text)
        ranking = exact_search(embedding, documents, loaded.corpus, depth, encoder.device)
    else:
        from opera.retrieval.approximate import ApproximateIndex

        ranking = ApproximateIndex(kind, encoder, loaded, corpus_text).search(embedding, depth)
    rows, scores = ranking.doc_rows[0], ranking.scores[0].tolist()
    columns = zip(loaded.corpus.ids(rows), scores, loaded.corpus.texts(rows), strict=True)
    return [FoundDocument(rank, *column) for rank, column in enumerate(columns, start=1)]
