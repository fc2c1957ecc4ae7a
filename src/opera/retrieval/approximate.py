"""Approximate search by FAISS: which documents are found is approximate, their scores are exact.

The index is built from the kept embeddings and lies beside them in the cache. Candidates are scored
again by the embeddings, so a document that is found has the score and the place among the others
that exact search gives it.
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
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import Encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import DISTANCES, NearestDocuments, exact_search

log = logging.getLogger("opera")

LAYOUT = "3"
"""Goes up when the constants below change, or how indexes are built or searched."""
LINKS = 32
"""HNSW: links of a document, twice as many in the lowest layer."""
LEAST_WIDTH = 128
"""HNSW: candidates that a search follows, at least; twice its depth if that is more."""
LEAST_LISTS = 64
"""IVF: lists that a search reads, at least; more if these hold fewer than four times its depth."""
PER_LIST = 64
"""IVF: documents per list that k-means reads, at most."""
RECALL_QUERIES, RECALL_DEPTH = 100, 10
"""Queries that recall is measured on when an index is built, and documents for each to find."""
QUERIES, DOCUMENTS = 1024, 16_384
"""Queries that are searched at once, and documents that are added to an index at once."""
SAMPLE_BYTES = 2**27
"""Of the embeddings that k-means reads, at most."""
INDEX_FILE, RECALL_FILE = "index.faiss", "recall.json"


class ApproximateIndex:
    """An index of a corpus by FAISS; built, or opened in the cache. All processes make it together.

    Args:
        kind: ``hnsw`` or ``ivf``.
        encoder: encodes the corpus, and keeps its embeddings in the cache.
        data: the texts.
        corpus_text: what of a document is encoded.

    Raises:
        ModelError: if the model ranks by a distance.
    """

    def __init__(
        self, kind: SearchIndex, encoder: Encoder, data: RetrievalData, corpus_text: CorpusText
    ) -> None:
        if encoder.similarity in DISTANCES:
            raise ModelError(
                f"--index {kind}: ranks by products, and the model's similarity_fn_name is "
                f"{encoder.similarity}; search exactly, without an index"
            )
        self.kind, self.encoder, self.data = kind, encoder, data
        self.documents = encoder.encode_corpus(data, corpus_text)
        count = min(RECALL_QUERIES, len(data.queries))
        rows = np.linspace(0, len(data.queries) - 1, count).astype(np.int64)
        queries, depth = encoder.encode_queries(data, rows), min(RECALL_DEPTH, len(data.corpus))
        key = (data.fingerprint, corpus_text, kind, f"layout {LAYOUT}, faiss {faiss.__version__}")

        def write(folder: Path) -> None:
            everywhere(lambda: self._make(folder, queries, depth) if process_index() == 0 else None)

        faiss.omp_set_num_threads(torch.get_num_threads())
        home = encoder.cached("faiss", *key, write=write, roles=["document"])
        in_file = faiss.IO_FLAG_MMAP if kind == "ivf" else 0
        self._index = faiss.read_index(str(home / INDEX_FILE), in_file)
        recall = json.loads((home / RECALL_FILE).read_text())
        if process_index() == 0:
            said = "note: recall@%d of the %s index is %.3f against exact search, on %d queries"
            log.info(said, depth, kind, recall, count)

    def search(self, query_embeddings: Vectors, depth: int) -> Ranking:
        """Rank documents for each query, ``depth`` at most the corpus; this process alone.

        A query for which the index finds too few documents is searched exactly, which is logged.
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
                nearest.add_some(start + number, rows, self.documents[rows])
        ranking = nearest.ranking()
        few = np.flatnonzero(np.isneginf(ranking.scores).any(axis=1))
        if few.size:
            found_little = "queries are searched exactly: the index found too little"
            log.info("note: %d of %d %s", len(few), len(query_embeddings), found_little)
            exact = self._exact(query_embeddings[few], depth)
            ranking.doc_rows[few], ranking.scores[few] = exact.doc_rows, exact.scores
        return ranking

    def rank(self, query_rows: IntArray, depth: int) -> Ranking:
        """Rank the corpus for some of the data's queries, each process a share."""
        queries = self.encoder.encode_queries(self.data, query_rows)
        parts = everywhere(lambda: self.search(queries[own_share(len(queries), QUERIES)], depth))
        rows, scores = [part.doc_rows for part in parts], [part.scores for part in parts]
        return Ranking(np.concatenate(rows), np.concatenate(scores))

    def _exact(self, queries: Vectors, depth: int) -> Ranking:
        return exact_search(queries, self.documents, self.data.corpus, depth, self.encoder.device)

    def _make(self, folder: Path, queries: Vectors, depth: int) -> None:
        """Write the index, and which share of the best documents it finds; 0 without queries."""
        self._index = _build(self.kind, self.documents)
        approximate, exact = (way(queries, depth).doc_rows for way in (self.search, self._exact))
        both = sum(len(np.intersect1d(*pair)) for pair in zip(exact, approximate, strict=True))
        (folder / RECALL_FILE).write_text(json.dumps(both / max(1, exact.size)))
        faiss.write_index(self._index, str(folder / INDEX_FILE))

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
