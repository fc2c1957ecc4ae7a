"""Approximate search by FAISS: it may miss documents, but the scores are exact.

The index is built from the embeddings in the cache and is cached next to them. OPERA scores the
candidates again by their embeddings. So a document that the index finds has the same score, and the
same order relative to the other results, as in exact search.
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch

from opera.config.encoding import SearchIndex
from opera.core.arrays import IntArray
from opera.core.errors import ModelError
from opera.core.processes import everywhere, own_share, process_index
from opera.core.progress import counted
from opera.core.terminal import counted as plural
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import Encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import DISTANCES, NearestDocuments, exact_search

log = logging.getLogger("opera")

LAYOUT = "3"
"""Raise it if the constants below change, or how indexes are built or searched."""
LINKS = 32
"""HNSW: links per document; the lowest layer has twice as many."""
LEAST_WIDTH = 128
"""HNSW: minimum number of candidates that a search follows; twice the depth if that is more."""
LEAST_LISTS = 64
"""IVF: minimum number of lists that a search reads; more lists if they hold too few documents."""
PER_LIST = 64
"""IVF: maximum number of documents per list that k-means reads."""
RECALL_QUERIES, RECALL_DEPTH = 100, 10
"""Queries on which recall is measured when an index is built, and the cut-off of that recall."""
QUERIES, DOCUMENTS = 1024, 16_384
"""Queries per search call, and documents per call that adds to an index."""
SAMPLE_BYTES = 2**27
"""Maximum size of the embeddings that k-means reads."""
INDEX_FILE, RECALL_FILE = "index.faiss", "recall.json"


class ApproximateIndex:
    """A FAISS index of a corpus, built or read from the cache. All processes call it together.

    Args:
        kind: ``hnsw`` or ``ivf``.
        encoder: encodes the corpus and caches its embeddings.
        data: the texts.
        corpus_text: which text of a document is encoded.

    Raises:
        ModelError: if the model ranks by a distance.
    """

    def __init__(
        self, kind: SearchIndex, encoder: Encoder, data: RetrievalData, corpus_text: CorpusText
    ) -> None:
        if encoder.similarity in DISTANCES:
            raise ModelError(
                f"--index {kind}: ranks by dot products, but the model's similarity_fn_name is "
                f"{encoder.similarity}; use exact search, without --index"
            )
        self.kind, self.encoder, self.data = kind, encoder, data
        self.documents = encoder.encode_corpus(data, corpus_text)
        count = min(RECALL_QUERIES, len(data.queries))
        rows = np.linspace(0, len(data.queries) - 1, count).astype(np.int64)
        queries, depth = encoder.encode_queries(data, rows), min(RECALL_DEPTH, len(data.corpus))
        key = (data.fingerprint, corpus_text, kind, f"layout {LAYOUT}, faiss {faiss.__version__}")

        def write(folder: Path) -> None:
            everywhere(
                lambda: self._write(folder, queries, depth) if process_index() == 0 else None
            )

        faiss.omp_set_num_threads(torch.get_num_threads())
        folder = encoder.cached("faiss", *key, write=write, roles=["document"])
        flags = faiss.IO_FLAG_MMAP if kind == "ivf" else 0
        self._index = faiss.read_index(str(folder / INDEX_FILE), flags)
        recall = json.loads((folder / RECALL_FILE).read_text())
        if process_index() == 0:
            note = "note: recall@%d of the %s index is %.3f against exact search, on %s"
            log.info(note, depth, kind, recall, plural(count, "query"))

    def search(self, query_embeddings: Vectors, depth: int) -> Ranking:
        """Rank documents for each query in this process alone; ``depth`` may not exceed the corpus.

        If the index finds too few documents for a query, exact search ranks it; a note says so.
        """
        nearest = NearestDocuments(query_embeddings[:], self.data.corpus, depth)
        parameters, starts = self._parameters(depth), range(0, len(query_embeddings), QUERIES)
        hidden = len(starts) < 20 or process_index() > 0
        for start in counted(starts, "searching", len(starts), "parts", hidden=hidden):
            queries = query_embeddings[start : start + QUERIES]
            for number, neighbours in enumerate(
                self._index.search(queries, depth, params=parameters)[1]
            ):
                rows = np.unique(neighbours[neighbours >= 0])
                nearest.add_rows(start + number, rows, self.documents[rows])
        ranking = nearest.ranking()
        few = np.flatnonzero(np.isneginf(ranking.scores).any(axis=1))
        if few.size:
            note = "note: exact search ranks %d of %s, as the index found too few documents"
            log.info(note, len(few), plural(len(query_embeddings), "query"))
            exact = self._exact(query_embeddings[few], depth)
            ranking.doc_rows[few], ranking.scores[few] = exact.doc_rows, exact.scores
        return ranking

    def rank(self, query_rows: IntArray, depth: int) -> Ranking:
        """Rank the corpus for some queries of the data; each process searches some of them."""
        queries = self.encoder.encode_queries(self.data, query_rows)
        parts = everywhere(lambda: self.search(queries[own_share(len(queries), QUERIES)], depth))
        rows, scores = [part.doc_rows for part in parts], [part.scores for part in parts]
        return Ranking(np.concatenate(rows), np.concatenate(scores))

    def _exact(self, queries: Vectors, depth: int) -> Ranking:
        return exact_search(queries, self.documents, self.data.corpus, depth, self.encoder.device)

    def _write(self, folder: Path, queries: Vectors, depth: int) -> None:
        """Write the index and its recall against exact search, which is 0 without queries."""
        self._index = _build(self.kind, self.documents)
        approximate, exact = (
            search(queries, depth).doc_rows for search in (self.search, self._exact)
        )
        hits = sum(len(np.intersect1d(*pair)) for pair in zip(exact, approximate, strict=True))
        (folder / RECALL_FILE).write_text(json.dumps(hits / max(1, exact.size)))
        faiss.write_index(self._index, str(folder / INDEX_FILE))

    def _parameters(self, depth: int) -> Any:
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(LEAST_WIDTH, 2 * depth))
        lists = self._index.nlist
        enough = math.ceil(4 * depth * lists / len(self.documents))
        return faiss.SearchParametersIVF(nprobe=min(lists, max(LEAST_LISTS, enough)))


def _build(kind: SearchIndex, documents: Vectors) -> Any:
    """Build an index of documents ``[n, dimension]`` in memory, with fp16 vectors.

    One thread builds an HNSW graph, so that the graph is always the same.
    """
    count, dimension = documents.shape
    fp16, product = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = faiss.IndexHNSWSQ(dimension, fp16, LINKS, product)
        index.train(documents[:1])
    else:
        most = max(1, round(2 * math.sqrt(count)))
        sample = min(count, PER_LIST * most, SAMPLE_BYTES // (4 * dimension))
        lists = max(1, min(most, sample // 39))  # FAISS wants 39 documents per list, or warns
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(dimension), dimension, lists, fp16, product, False
        )
        index.train(documents[np.linspace(0, count - 1, sample).astype(np.int64)])
    faiss.omp_set_num_threads(1 if kind == "hnsw" else torch.get_num_threads())
    starts = range(0, count, DOCUMENTS)
    for start in counted(starts, "indexing", len(starts), "parts", hidden=len(starts) < 10):
        index.add(documents[start : start + DOCUMENTS])
    faiss.omp_set_num_threads(torch.get_num_threads())
    return index
