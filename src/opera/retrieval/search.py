"""Search a corpus: for the queries of a data set, and ``opera.search`` for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opera.config.encoding import SearchIndex, checked_index
from opera.core.arguments import MOST, number, text, whole_number
from opera.core.arrays import IntArray
from opera.core.errors import DataError, SettingError
from opera.core.processes import everywhere, own_share, process_index
from opera.data import RetrievalData, TextTable, load_data
from opera.data.checks import check_text
from opera.data.combined import one_set
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import Encoder, open_encoder, rows_digest
from opera.retrieval.locate import data_and_model, run_corpus_text, run_cutoff
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import NearestDocuments, exact_search, first_dimensions, tiles
from opera.retrieval.prompts import given_prompts, with_data_prompt

RANKING_FILE = "ranking.npz"
QUERY_BYTES = 2**28
"""Of the embeddings of queries, and of what is found for each, at once."""
UNIT = 16_384
"""Processes share the documents in multiples of this number."""


def rank_by_size(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    sizes: Sequence[int],
    corpus_text: CorpusText = "title_text",
) -> dict[int, Ranking]:
    """Rank the corpus by the first dimensions of its embeddings, each number of them by itself.

    Each process looks through its own rows, and all call this. Embeddings that are kept are
    searched for :data:`QUERY_BYTES` of the queries' at once; others as they are computed, for all.
    """
    queries = encoder.encode_queries(data, query_rows)
    rank = partial(
        _rank_by_size, corpus=data.corpus, depth=depth, sizes=sizes, similarity=encoder.similarity
    )
    if not encoder.use_cache:
        parts = encoder.document_parts(data, corpus_text)
        return rank(queries[:], parts, device=encoder.device)
    documents, share = encoder.encode_corpus(data, corpus_text), own_share(len(data.corpus), UNIT)
    most = max(1, QUERY_BYTES // (4 * encoder.dimension + 16 * depth))
    cuts = (queries[start : start + most] for start in range(0, max(1, len(queries)), most))
    rankings = [rank(cut, tiles(documents, share, len(cut)), device=encoder.device) for cut in cuts]
    return {
        size: Ranking(
            np.concatenate([part[size].doc_rows for part in rankings]),
            np.concatenate([part[size].scores for part in rankings]),
        )
        for size in sizes
    }


def _rank_by_size(
    queries: NDArray[np.float32],
    parts: Iterator[tuple[int, NDArray[np.float32]]],
    corpus: TextTable,
    depth: int,
    sizes: Sequence[int],
    similarity: str,
    device: str,
) -> dict[int, Ranking]:
    cut = partial(first_dimensions, length_1=similarity == "cosine")
    searches = {
        size: NearestDocuments(cut(queries, size), corpus, depth, device, similarity)
        for size in sizes
    }

    def look() -> None:
        for first, tile in parts:
            for size, nearest in searches.items():
                nearest.add(first, cut(tile, size))

    everywhere(look)
    for nearest in searches.values():
        nearest.add_of_other_processes()
    return {size: nearest.ranking() for size, nearest in searches.items()}


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


def without_own_documents(ranking: Ranking, own_documents: IntArray, depth: int) -> Ranking:
    """Leave out of each query's ranking the document that is the query, and keep ``depth`` places.

    Args:
        ranking: at least one place deeper than ``depth`` where the corpus has as many documents.
        own_documents: int ``[n]``, the row of that document; -1 where there is none.
        depth: how many documents to keep per query.
    """
    others = (ranking.doc_rows != own_documents[:, None]) | (own_documents[:, None] < 0)
    order = np.argsort(~others, axis=1, kind="stable")[:, :depth]  # what is left out goes last
    stays = np.take_along_axis(others, order, axis=1)
    doc_rows = np.take_along_axis(ranking.doc_rows, order, axis=1)
    scores = np.take_along_axis(ranking.scores, order, axis=1)
    return Ranking(np.where(stays, doc_rows, -1), np.where(stays, scores, -np.inf))


@dataclass(frozen=True)
class FoundDocument:
    """One document that a search returned.

    Attributes:
        rank: 1 for the best.
        id: id of the document.
        score: its similarity to the query, by the model's ``similarity_fn_name``.
        text: its text, title in front.
        good_enough: whether its score reaches the cut-off; true without one.
    """

    rank: int
    id: str
    score: float
    text: str = field(repr=False)
    good_enough: bool = True


def checked_query(query: str) -> str:
    """Return a query.

    Raises:
        InputError: if it is empty, no text, or cannot be written as UTF-8.
    """
    if not text(query, "query").strip():
        raise DataError("query: must not be empty")
    check_text("query", query)
    return query


class CorpusSearch:
    """A corpus, a model and an index, loaded to search for any number of queries.

    Args:
        data: a data set; or a run, if no model is given.
        model: a model.
        index: as of :func:`search`.
        query_prompt: as of :func:`search`.
        document_prompt: as of :func:`search`.
        cutoff: as of :func:`search`.
        precision: as of :func:`search`.

    Attributes:
        data: the corpus.
        model: the name of the model.
        cutoff: the lowest score of a document that is good enough; ``None`` for any score.
    """

    def __init__(
        self,
        data: str | Path | RetrievalData,
        model: str | Path | None = None,
        index: str = "exact",
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        cutoff: float | None = None,
        precision: float | None = None,
    ) -> None:
        kind = checked_index(index)
        if cutoff is not None and precision is not None:
            raise SettingError("--cutoff --precision: give one of the two")
        self.cutoff = None if cutoff is None else number(cutoff, "cutoff", -MOST, MOST)
        source, self.model = data_and_model(data, model)
        if precision is not None:
            self.cutoff = run_cutoff(self.model, number(precision, "precision", 0, 1))
        self.data = one_set(load_data(source), "search")
        prompts = given_prompts(query_prompt, document_prompt)
        self._encoder = open_encoder(self.model, **with_data_prompt(prompts, self.data, self.model))
        text = run_corpus_text(self.model)
        if kind == "exact":
            documents, device = self._encoder.encode_corpus(self.data, text), self._encoder.device
            self._rank: Callable[[Vectors, int], Ranking] = lambda queries, depth: exact_search(
                queries, documents, self.data.corpus, depth, device, self._encoder.similarity
            )
        else:
            from opera.retrieval.approximate import ApproximateIndex

            self._rank = ApproximateIndex(kind, self._encoder, self.data, text).search

    def find(self, query: str, top: int = 5) -> list[FoundDocument]:
        """Return the best documents of a query, as :func:`search`."""
        depth, corpus = min(top, len(self.data.corpus)), self.data.corpus
        ranking = self._rank(self._encoder.encode([query], "query"), depth)
        rows, scores = ranking.doc_rows[0], ranking.scores[0].tolist()
        good_enough = [self.cutoff is None or score >= self.cutoff for score in scores]
        columns = zip(corpus.ids(rows), scores, corpus.texts(rows), good_enough, strict=True)
        return [FoundDocument(rank, *column) for rank, column in enumerate(columns, start=1)]


def search(
    data: str | Path | RetrievalData,
    query: str,
    *,
    model: str | Path | None = None,
    top: int = 5,
    index: str = "exact",
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    cutoff: float | None = None,
    precision: float | None = None,
) -> list[FoundDocument]:
    """Search a corpus for one query.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data; or a run's folder, which needs
            no ``model``.
        query: what to search for.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        top: how many documents to return.
        index: ``exact``, or FAISS's ``hnsw`` or ``ivf`` (extra ``faiss``), which may miss some
            documents; how many is measured on the data's own queries, and logged.
        query_prompt: text before the query, empty for none; the default is the data's, or the
            model's own.
        document_prompt: text before each document, in the same way.
        cutoff: the lowest score of a document that is good enough to be an answer.
        precision: choose the cut-off for which this share of the best documents, 0 to 1, is
            relevant on the test queries of a run.

    Returns:
        The documents, best first; fewer than ``top`` if the corpus is smaller. If the first is not
        ``good_enough``, none is, and the question is better not answered.

    Raises:
        InputError: for an empty query, an index whose package is not installed, a precision that no
            cut-off reaches, or other invalid input.
    """
    checked_query(query)
    top = whole_number(top, "top", 1)
    prompts = (query_prompt, document_prompt)
    return CorpusSearch(data, model, index, *prompts, cutoff, precision).find(query, top)
