"""Search a corpus for the queries of a data set, or for one query (``opera.search``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from opera.config.arguments import ModelArguments, reading_of, with_group
from opera.config.training import EncodingSettings
from opera.core.arguments import MOST, number, text, whole_number
from opera.core.arrays import IntArray
from opera.core.errors import DataError, SettingError, raise_first
from opera.core.processes import everywhere, process_range
from opera.core.terminal import counted
from opera.data import Mixture, RetrievalData, Source, load_data
from opera.data.loading import named_source
from opera.data.relation import check_string
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, cached_arrays, open_encoder, rows_digest
from opera.retrieval.keywords import POOL, Fusion, KeywordIndex
from opera.retrieval.kinds import Dense
from opera.retrieval.kinds.candidates import (
    MEASURED_QUERIES,
    TOP,
    NearestCandidates,
)
from opera.retrieval.kinds.rows import NearestRows
from opera.retrieval.locate import (
    Model,
    data_and_model,
    model_title,
    run_corpus_text,
    run_cutoff,
    run_keyword_index,
    run_keyword_weight,
)
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import BestDocuments, exact_search
from opera.retrieval.passages import DocumentVectors, products
from opera.retrieval.prompts import with_data_prompt
from opera.retrieval.vectors import first_dimensions, tiles

UNIT = 16_384
"""A process searches a multiple of this number of documents."""


def rank_by_size(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    sizes: Sequence[int],
    corpus_text: CorpusText = "title_text",
) -> dict[int, Ranking]:
    """Rank the corpus once for each number of first dimensions in ``sizes``.

    All processes must call this; each searches a part of the corpus. If embeddings are not cached,
    the search reads the documents while they are encoded.
    """
    queries = encoder.encode_queries(data, query_rows)[:]
    parts = _corpus_parts(encoder, data, corpus_text, len(queries))
    cut = partial(first_dimensions, length_1=encoder.similarity == "cosine")
    searches = {size: encoder.nearest(cut(queries, size), data, depth) for size in sizes}
    return _search_parts(parts, searches, cut)


def _corpus_parts(
    encoder: Encoder, data: RetrievalData, corpus_text: CorpusText, n_queries: int
) -> Iterable[tuple[int, Any]]:
    """Yield this process's part of the corpus, with first rows, from the cache if it is used."""
    if not encoder.use_cache:
        return encoder.document_parts(data, corpus_text)
    rows = encoder.encode_corpus(data, corpus_text).rows
    return tiles(rows, process_range(len(rows), UNIT), n_queries)


def index_facts(
    encoder: Encoder, mixture: Mixture, split: str, corpus_text: CorpusText
) -> dict[str, float]:
    """Describe the size of an index of the corpus, and the judged queries of a split; empty for a
    dense model, or if the corpus would have to be encoded again. All processes must call this."""
    kind = encoder.kind
    if kind is Dense or not (encoder.use_cache or encoder.memory is not None):
        return {}
    queries, documents = [], list[NDArray[np.int64]]()
    for data in mixture.data_sets:
        rows = data.judged_qrels(split).query_rows if split in data.splits else np.empty(0, int)
        queries.append(kind.counts(encoder.encode_queries(data, rows)[:]))
        parts = _corpus_parts(encoder, data, corpus_text, 0)
        count = sum(kind.counts(part) for _, part in parts)
        documents += [shared for shared in everywhere(partial(np.asarray, count)) if shared.ndim]
    facts = kind.facts(np.sum(queries, axis=0), np.sum(documents, axis=0))
    return facts | candidate_facts(encoder, mixture, split, corpus_text)


def candidate_facts(
    encoder: Encoder, mixture: Mixture, split: str, corpus_text: CorpusText
) -> dict[str, float]:
    """Say how much of the exact best documents a search over candidates finds; empty if all
    searches are exact.

    OPERA measures some queries of dev, or of ``split`` if there is no dev, with all documents.
    """
    split = "dev" if "dev" in mixture.joined.splits else split
    found, counts = list[NDArray[np.bool_]](), [0]
    for data in mixture.with_relevant(split):
        rows = data.judged_qrels(split).query_rows
        rows = rows[np.linspace(0, len(rows) - 1, min(MEASURED_QUERIES, len(rows))).astype(int)]
        queries: Any = encoder.encode_queries(data, rows)[:]
        search = encoder.nearest(queries, data, TOP)
        if isinstance(search, NearestCandidates):
            exact = NearestRows(queries, data.corpus, TOP)
            parts = _corpus_parts(encoder, data, corpus_text, len(queries))
            rankings = _search_parts(parts, {0: exact, 1: search}, lambda tile, _: tile)
            best, candidates = (ranking.doc_rows for ranking in rankings.values())
            found += [np.isin(*pair) for pair in zip(best, candidates, strict=True)]
            counts.append(search.n_candidates)
    if not found:
        return {}
    name = f"% of the exact top {TOP} found on {counted(len(found), f'{split} query')}"
    return {"candidates per query": max(counts), name: 100 * float(np.mean(found))}


def search_mapped(
    encoder: Encoder,
    queries: NDArray[np.float32],
    data: RetrievalData,
    documents: DocumentVectors,
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    depth: int,
) -> Ranking:
    """Rank documents by the encoder's similarity after ``change`` maps their embeddings.

    All processes must call this; each searches a part of the corpus.
    """
    parts = tiles(documents.rows, process_range(len(documents.rows), UNIT), len(queries))
    searches = {queries.shape[1]: encoder.nearest(queries, data, depth)}
    (ranking,) = _search_parts(parts, searches, lambda tile, _: change(tile)).values()
    return ranking


def _search_parts(
    parts: Iterable[tuple[int, NDArray[np.float32]]],
    searches: Mapping[int, BestDocuments],
    cut: Callable[[NDArray[np.float32], int], NDArray[np.float32]],
) -> dict[int, Ranking]:
    """Search this process's parts of a corpus for each size, and merge the processes' results."""

    def add_parts() -> None:
        for first, tile in parts:
            for size, nearest in searches.items():
                nearest.add(first, cut(tile, size))

    everywhere(add_parts)
    for nearest in searches.values():
        nearest.merge_processes()
    return {size: nearest.ranking() for size, nearest in searches.items()}


def search_corpus(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    corpus_text: CorpusText = "title_text",
) -> Ranking:
    """Rank the corpus for some queries of the data; all processes must call this.

    The ranking is cached on disk if embeddings are.
    """

    def rank() -> Ranking:
        size = encoder.dimension
        return rank_by_size(encoder, data, query_rows, depth, [size], corpus_text)[size]

    if not encoder.use_cache:
        return rank()
    key = encoder.key(data.fingerprint, corpus_text, str(depth), rows_digest(query_rows))
    return Ranking(**cached_arrays("rankings", key, lambda: vars(rank())))


def without_query_documents(ranking: Ranking, query_documents: IntArray, depth: int) -> Ranking:
    """Remove the document that is the query itself from each ranking, and keep ``depth`` documents.

    Args:
        ranking: deeper than ``depth`` by at least one document, if the corpus is large enough.
        query_documents: int ``[n]``, the row of the document that is the query; -1 for none.
        depth: how many documents to keep per query.
    """
    keeps = (ranking.doc_rows != query_documents[:, None]) | (query_documents[:, None] < 0)
    order = np.argsort(~keeps, axis=1, kind="stable")[:, :depth]  # removed documents go last
    keeps = np.take_along_axis(keeps, order, axis=1)
    doc_rows = np.take_along_axis(ranking.doc_rows, order, axis=1)
    scores = np.take_along_axis(ranking.scores, order, axis=1)
    return Ranking(np.where(keeps, doc_rows, -1), np.where(keeps, scores, -np.inf))


@dataclass(frozen=True)
class RankedDocument:
    """One document that a search returned.

    Attributes:
        rank: 1 for the best.
        id: id of the document.
        score: its similarity to the query, by the model's ``similarity_fn_name``; in hybrid search
            the fused score, from 0 to 1.
        text: its title and text.
        good_enough: whether its score reaches the cut-off; true without a cut-off.
        passage: the passage that matches the query best, with the title; ``None`` if the model
            reads whole documents.
    """

    rank: int
    id: str
    score: float
    text: str = field(repr=False)
    good_enough: bool = True
    passage: str | None = field(default=None, repr=False)


def checked_query(query: str) -> str:
    """Return a query.

    Raises:
        InputError: if it is empty, not a text, or not valid UTF-8.
    """
    if not text(query, "query").strip():
        raise DataError("query: must not be empty")
    return check_string("query", query)


def keyword_index(model: Model, data: RetrievalData) -> KeywordIndex:
    """Open the keyword index of a run on these data, or count the words of the corpus."""
    folder = run_keyword_index(model, data)
    if folder is None:
        return KeywordIndex.build(data.corpus, run_corpus_text(model))
    return KeywordIndex.open(folder, data.corpus)


def best_passages(
    encoder: Encoder,
    data: RetrievalData,
    documents: DocumentVectors,
    query: NDArray[np.float32],
    doc_rows: IntArray,
) -> Sequence[str | None]:
    """Return the best passage of each document for a query, float32 ``[1, dimension]``; ``None`` if
    documents stay whole.
    """
    passages = encoder.passages(data)
    if passages is None:
        return [None] * len(doc_rows)
    texts = []
    for doc_row in doc_rows:
        rows = passages.rows_of(np.array([doc_row]))
        vectors = documents.rows[rows]
        if encoder.kind is Dense:
            scores = encoder.model.similarity(query, vectors)[0]
        else:
            scores = products(query, vectors)[0]
        texts += passages.table.texts(rows[[int(scores.argmax())]])
    return texts


class CorpusSearch:
    """A corpus and a model, loaded to search for any number of queries.

    ``settings`` are arguments of :func:`opera.retrieval.encoder.open_encoder`; the other arguments
    are those of :func:`search`.

    Attributes:
        data: the corpus.
        cutoff: the lowest score that is good enough; ``None`` for any score.
        keyword_weight: the weight of keyword search in hybrid search; ``None`` for the model alone.
    """

    def __init__(
        self,
        data: Source,
        model: Model | None = None,
        cutoff: float | None = None,
        min_precision: float | None = None,
        hybrid: bool | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        raise_first(
            SettingError,
            (
                hybrid and (cutoff is not None or min_precision is not None),
                "--hybrid: a cut-off applies to the model alone; pass only one of the two",
            ),
            (
                cutoff is not None and min_precision is not None,
                "--cutoff --min-precision: pass only one of the two options",
            ),
        )
        self.cutoff = None if cutoff is None else number(cutoff, "cutoff", -MOST, MOST)
        source, model, _ = data_and_model(data, model)
        if min_precision is not None:
            self.cutoff = run_cutoff(model, number(min_precision, "min_precision", 0, 1))
        self.data = load_data(source)
        self._encoder = open_encoder(model, **with_data_prompt(settings or {}, self.data, model))
        self._documents = self._encoder.encode_corpus(self.data, run_corpus_text(model))
        self.keyword_weight = None
        if hybrid is not False and self.cutoff is None:
            self.keyword_weight = run_keyword_weight(model, self.data)
        if hybrid and self.keyword_weight is None:
            raise SettingError(
                f"--hybrid: {model_title(model)} has no weight of keyword search for these data; "
                "pass a finished run on them that measured BM25"
            )
        if self.keyword_weight:
            self._keywords = keyword_index(model, self.data)

    def find(self, query: str, top: int = 5) -> list[RankedDocument]:
        """Return the best documents of a query, as :func:`search` does."""
        encoder, corpus = self._encoder, self.data.corpus
        if self.keyword_weight and top > POOL:
            raise SettingError(
                f"--top: hybrid search ranks {POOL} documents, got {top}; pass --no-hybrid for more"
            )
        vectors = encoder.encode([query], "query")
        depth = POOL if self.keyword_weight else top
        ranking = exact_search(encoder.nearest(vectors, self.data, depth), self._documents.rows)
        if self.keyword_weight:
            words = self._keywords.search([query], POOL)
            ranking = Fusion(ranking, words, corpus).ranking(self.keyword_weight, top)
        exists = ranking.doc_rows[0] >= 0
        rows, scores = ranking.doc_rows[0][exists], ranking.scores[0][exists].tolist()
        good_enough = [self.cutoff is None or score >= self.cutoff for score in scores]
        passages = best_passages(encoder, self.data, self._documents, vectors, rows)
        columns = corpus.ids(rows), scores, corpus.texts(rows), good_enough, passages
        return [
            RankedDocument(rank, *document)
            for rank, document in enumerate(zip(*columns, strict=True), start=1)
        ]


@with_group(ModelArguments)
def search(
    data: Any,
    query: str,
    *,
    model: Model | None = None,
    top: int = 5,
    cutoff: float | None = None,
    min_precision: float | None = None,
    hybrid: bool | None = None,
    **arguments: Unpack[ModelArguments],
) -> list[RankedDocument]:
    """Search a corpus for one query.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data; or a run's folder, which needs
            no ``model``.
        query: the text of the query.
        model: a sentence-transformers folder or hub id, a loaded SentenceTransformer, an OPERA run,
            or ``minilm``.
        top: how many documents to return.
        cutoff: the lowest score of a document that is good enough to be an answer.
        min_precision: choose the cut-off at which this fraction of the answers, 0 to 1, is relevant
            on the test queries of a run.
        hybrid: fuse the 100 best documents of the model with those of keyword search. By default,
            OPERA does so with the weight that a run chose, unless a cut-off is set.
        arguments: how to read tables, and how the model reads texts (``ModelArguments``).

    Returns:
        The documents, best first; fewer than ``top`` if the corpus is smaller. If the first
        document is not ``good_enough``, no document is, and the query should get no answer.

    Raises:
        InputError: for an empty query, a precision that no cut-off reaches, or other invalid input.

    Examples:
        >>> best, *rest = opera.search("my-run", "replace the air filters", top=3)
        >>> best.rank, len(rest)
        (1, 2)
    """
    checked_query(query)
    top = whole_number(top, "top", 1)
    settings = EncodingSettings.chosen(**arguments)
    source = named_source(data, **reading_of(arguments))
    return CorpusSearch(source, model, cutoff, min_precision, hybrid, settings).find(query, top)
