"""Approximate search by FAISS, for those who ask for it: which documents are found is approximate, scores are exact.

The index is built from the kept embeddings and lies beside them in the cache. Candidates are scored again by the
embeddings, so a document that is found has the score and the place among the others that exact search gives it.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch

from opera.config.search_index import SearchIndex
from opera.core.arrays import IntArray
from opera.core.errors import OperaError
from opera.core.processes import everywhere, own_share, process_index
from opera.core.progress import counted
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import SEARCH_MEMORY, Encoder, rows_digest
from opera.retrieval.measures import Ranking
from opera.retrieval.search import NearestDocuments, empty_ranking, exact_search, fill

log = logging.getLogger("opera")

LAYOUT = "2"
"""Goes up when the constants below change, or how indexes are built or searched: they are kept, and their recall."""
LINKS = 32
"""HNSW: links of a document, twice as many in the lowest layer."""
LEAST_WIDTH = 128
"""HNSW: candidates that a search follows, at least; twice its depth if that is more."""
LEAST_LISTS = 64
"""IVF: lists that a search reads, at least; more where these hold fewer than four times its depth."""
PER_LIST = 64
"""IVF: documents per list that k-means reads, at most."""
RECALL_QUERIES = 100
"""Queries that recall is measured on."""
LEAST_RECALL = 0.5
"""What an index must find; those that fit find more than 0.9."""
TILE, QUERIES = 4096, 1024
"""Documents that are added at once, and queries that are searched at once."""
INDEX_FILE, RECALL_FILE = "index.faiss", "recall.json"


class ApproximateIndex:
    """An index of a corpus by FAISS; built, or opened in the cache. All processes make it together.

    Args:
        kind: ``hnsw`` or ``ivf``.
        encoder: encodes the corpus; if it uses no cache, the index is kept nowhere.
        data: the texts.
        corpus_text: what of a document is encoded.

    Raises:
        OperaError: if FAISS cannot build the index.
    """

    def __init__(
        self, kind: SearchIndex, encoder: Encoder, data: RetrievalData, corpus_text: CorpusText
    ) -> None:
        self.kind, self.encoder, self.data = kind, encoder, data
        self.documents: Vectors = encoder.encode_corpus(data, corpus_text)
        self._key = (
            data.fingerprint,
            corpus_text,
            kind,
            f"layout {LAYOUT}, faiss {faiss.__version__}",
        )
        faiss.omp_set_num_threads(torch.get_num_threads())
        if encoder.use_cache:
            home = self._kept(
                "faiss", lambda folder: self._write(folder / INDEX_FILE), roles=["document"]
            )
            self._index = faiss.read_index(
                str(home / INDEX_FILE), faiss.IO_FLAG_MMAP if kind == "ivf" else 0
            )
        else:
            self._index = _build(kind, self.documents)

    def search(self, query_embeddings: Vectors, depth: int) -> Ranking:
        """Rank documents for each query; this process alone.

        A query for which the index finds fewer than ``depth`` documents is searched exactly, and a note counts these.

        Args:
            query_embeddings: float32 ``[n, dimension]``.
            depth: how many documents to return per query, at most the corpus.
        """
        count, parameters = len(query_embeddings), self._parameters(depth)
        whole, starts = empty_ranking(count, depth), range(0, count, QUERIES)
        for start in counted(
            starts,
            "searching",
            len(starts),
            "parts",
            hidden=len(starts) < 20 or process_index() > 0,
        ):
            part = slice(start, min(start + QUERIES, count))
            queries = np.ascontiguousarray(query_embeddings[part])
            nearest = NearestDocuments(queries, self.data.corpus, depth)
            for at, found in enumerate(self._index.search(queries, depth, params=parameters)[1]):
                rows = np.unique(found[found >= 0])
                nearest.add_some(at, rows, self.documents[rows])
            fill(whole, part, nearest.ranking())
        few = np.flatnonzero(np.isneginf(whole.scores).any(axis=1))
        if few.size:
            log.info(
                "note: %d of %d queries are searched exactly: the index found too little",
                len(few),
                count,
            )
            exact = exact_search(
                query_embeddings[few], self.documents, self.data.corpus, depth, self.encoder.device
            )
            whole.doc_rows[few], whole.scores[few] = exact.doc_rows, exact.scores
        return whole

    def rank(self, query_rows: IntArray, depth: int) -> Ranking:
        """Rank the corpus for some of the data's queries, each process its share, and log the recall.

        Args:
            query_rows: int ``[n]``, rows of the query table.
            depth: how many documents to keep per query, at most the corpus.
        """
        self.note_recall(query_rows, depth)
        queries = self.encoder.encode_queries(self.data, query_rows)
        parts = everywhere(lambda: self.search(queries[own_share(len(queries), QUERIES)], depth))
        rows, scores = [part.doc_rows for part in parts], [part.scores for part in parts]
        return Ranking(np.concatenate(rows), np.concatenate(scores))

    def note_recall(self, query_rows: IntArray, depth: int) -> None:
        """Log which share of the best ``depth`` documents is found, on up to 100 of some queries, at equal distances.

        Raises:
            OperaError: if the index finds less than half of what it should.
        """
        count = min(RECALL_QUERIES, len(query_rows))
        if not count:
            log.info(
                "note: the data hold no queries to measure the recall of the %s index on", self.kind
            )
            return
        rows = query_rows[np.linspace(0, len(query_rows) - 1, count).astype(np.int64)]
        queries = self.encoder.encode_queries(self.data, rows)

        def measure() -> float:
            exact = exact_search(
                queries, self.documents, self.data.corpus, depth, self.encoder.device
            ).doc_rows
            found = self.search(queries, depth).doc_rows
            return (
                sum(len(np.intersect1d(*pair)) for pair in zip(exact, found, strict=True))
                / exact.size
            )

        if self.encoder.use_cache:
            key = (str(depth), rows_digest(rows))
            home = self._kept(
                "recalls",
                lambda folder: (folder / RECALL_FILE).write_text(json.dumps(measure())),
                *key,
            )
            recall = float(json.loads((home / RECALL_FILE).read_text()))
        else:
            recall = measure()
        if recall < LEAST_RECALL:
            raise OperaError(
                f"search_index={self.kind}: recall@{depth} is {recall:.3f} against exact search, on {count} queries: "
                "the index does not fit these embeddings, which may be nearly equal; search exactly, without an index"
            )
        if process_index() == 0:
            shown = (depth, self.kind, recall, count)
            log.info(
                "note: recall@%d of the %s index is %.3f against exact search, on %d queries",
                *shown,
            )

    def _kept(self, kind: str, write: Callable[[Path], object], *key: str, **options: Any) -> Path:
        """Return an entry of the cache, which the main process alone writes; where it fails, all fail."""

        def write_in_main(folder: Path) -> None:
            everywhere(lambda: write(folder) if process_index() == 0 else None)

        return self.encoder.cached(kind, *self._key, *key, write=write_in_main, **options)

    def _write(self, path: Path) -> None:
        try:
            faiss.write_index(_build(self.kind, self.documents), str(path))
        except RuntimeError as error:  # of FAISS, as where the disk is full
            reason = str(error).strip().splitlines()[-1:] or ["RuntimeError"]
            place = f"the index in {path.parent}"
            raise OperaError(
                f"search_index={self.kind}: FAISS cannot build {place}: {reason[0]}"
            ) from None

    def _parameters(self, depth: int) -> Any:
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(LEAST_WIDTH, 2 * depth))
        lists = self._index.nlist
        enough = math.ceil(4 * depth * lists / len(self.documents))
        return faiss.SearchParametersIVF(nprobe=min(lists, max(LEAST_LISTS, enough)))


def _build(kind: SearchIndex, documents: Vectors) -> Any:
    """Build an index of documents ``[n, dimension]`` in memory, vectors in fp16.

    A graph is built by one thread, so that it is always the same.
    """
    count, dimension = documents.shape
    fp16, product = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = faiss.IndexHNSWSQ(dimension, fp16, LINKS, product)
        index.train(documents[:1])
    else:
        most = max(1, round(2 * math.sqrt(count)))
        sample = min(count, PER_LIST * most, SEARCH_MEMORY // 2 // (4 * dimension))
        lists = max(1, min(most, sample // 39))  # FAISS wants 39 documents per list, or warns
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(dimension), dimension, lists, fp16, product, False
        )
        index.train(documents[np.linspace(0, count - 1, sample).astype(np.int64)])
    faiss.omp_set_num_threads(1 if kind == "hnsw" else torch.get_num_threads())
    try:
        starts = range(0, count, TILE)
        for start in counted(starts, "indexing", len(starts), "parts", hidden=len(starts) < 10):
            index.add(np.ascontiguousarray(documents[start : start + TILE]))
    finally:
        faiss.omp_set_num_threads(torch.get_num_threads())
    return index
