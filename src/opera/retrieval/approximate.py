"""Approximate search by FAISS, for those who ask for it: which documents are found is approximate, scores are exact.

The index is built from the kept embeddings and lies beside them in the cache. Candidates are scored again by the
embeddings, as :mod:`opera.retrieval.nearest` does, so a document that is found has the score and the place among the
others that exact search gives it.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from opera.config.search_index import SearchIndex
from opera.core.arrays import IntArray
from opera.core.errors import OperaError
from opera.core.processes import everywhere, own_share, process_index
from opera.core.progress import counted
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Vectors
from opera.retrieval._top_kernels import candidate_keys, scores_and_ranks
from opera.retrieval.encoder import Encoder, rows_digest
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import MEMORY, empty_ranking, exact_search, fill

log = logging.getLogger("opera")

LAYOUT = "1"
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
TILE = 4096
"""Documents that are added at once, and queries of one process at least."""
FILE_BYTES = 2**28
"""IVF: bytes of the vectors in a file, which is made in memory."""


class ApproximateIndex:
    """An index of a corpus by FAISS, which is installed; built, or opened in the cache. All processes make it together.

    Args:
        kind: ``hnsw`` or ``ivf``.
        encoder: encodes the corpus; if it uses no cache, the index is kept nowhere.
        data: the texts.
        corpus_text: what of a document is encoded.

    Raises:
        OperaError: if FAISS cannot build the index.
    """

    def __init__(self, kind: SearchIndex, encoder: Encoder, data: RetrievalData, corpus_text: CorpusText) -> None:
        faiss = _faiss()
        self.kind, self.encoder, self.data, self.corpus_text = kind, encoder, data, corpus_text
        self.documents: Vectors = encoder.encode_corpus(data, corpus_text)
        self._key = (data.fingerprint, corpus_text, kind, f"layout {LAYOUT}, faiss {faiss.__version__}")
        faiss.omp_set_num_threads(torch.get_num_threads())
        build = partial(_build, kind, self.documents)
        if encoder.use_cache:
            self._open(encoder.cached("faiss", *self._key, write=_in_main(build), roles=["document"]))
        else:
            with tempfile.TemporaryDirectory() as folder:
                build(Path(folder))
                self._open(Path(folder))

    def search(self, query_embeddings: Vectors, depth: int) -> Ranking:
        """Rank documents for each query; this process alone.

        A query for which the index finds fewer than ``depth`` documents is searched exactly, and a note counts these.

        Args:
            query_embeddings: float32 ``[n, dimension]``.
            depth: how many documents to return per query, at most the corpus.
        """
        count, dimension = query_embeddings.shape
        whole = empty_ranking(count, depth)
        size = max(1, MEMORY // 4 // (depth * (4 * dimension + 16)))
        starts, few = range(0, count, size), []
        for start in counted(starts, "searching", len(starts), "parts", hidden=len(starts) < 20 or process_index() > 0):
            part = slice(start, min(start + size, count))
            queries = np.ascontiguousarray(query_embeddings[part])
            found = [index.search(queries, depth, params=self._parameters(depth))[1] for index in self._indexes]
            keys = self._keys(queries, np.concatenate(found, axis=1))[:, :depth]
            few += (start + np.flatnonzero((keys == 0).any(axis=1))).tolist()
            fill(whole, part, self._ranking(keys))
        if few:
            log.info("note: %d of %d queries are searched exactly: the index found too little", len(few), count)
            exact = exact_search(
                query_embeddings[np.array(few)], self.documents, self.data.corpus, depth, self.encoder.device
            )
            whole.doc_rows[few], whole.scores[few] = exact.doc_rows, exact.scores
        return whole

    def recall(self, query_rows: IntArray, depth: int) -> float:
        """Share of the best ``depth`` documents that are found, on up to 100 of some queries. All processes call this.

        Args:
            query_rows: int ``[n]``, rows of the query table; 100 are taken at equal distances.
            depth: how many documents per query.
        """
        rows = query_rows[np.linspace(0, len(query_rows) - 1, min(RECALL_QUERIES, len(query_rows))).astype(np.int64)]
        queries = self.encoder.encode_queries(self.data, rows)

        def measure() -> float:
            exact = exact_search(queries, self.documents, self.data.corpus, depth, self.encoder.device).doc_rows
            found = self.search(queries, depth).doc_rows
            return sum(len(np.intersect1d(*pair)) for pair in zip(exact, found, strict=True)) / exact.size

        if not self.encoder.use_cache:
            return measure()

        def write(folder: Path) -> None:
            (folder / "recall.json").write_text(json.dumps(measure()), encoding="utf-8")

        home = self.encoder.cached("recalls", *self._key, str(depth), rows_digest(rows), write=_in_main(write))
        return float(json.loads((home / "recall.json").read_text(encoding="utf-8")))

    def note_recall(self, query_rows: IntArray, depth: int) -> None:
        """Log the recall; where the data hold no query, that it is not known.

        Raises:
            OperaError: if the index finds less than half of what it should.
        """
        if not len(query_rows):
            log.info("note: the data hold no queries to measure the recall of the %s index on", self.kind)
            return
        recall, count = self.recall(query_rows, depth), min(RECALL_QUERIES, len(query_rows))
        if recall < LEAST_RECALL:
            raise OperaError(
                f"search_index={self.kind}: recall@{depth} is {recall:.3f} against exact search, on {count} queries: "
                "the index does not fit these embeddings, which may be nearly equal; search exactly, without an index"
            )
        if process_index() == 0:
            shown = (depth, self.kind, recall, count)
            log.info("note: recall@%d of the %s index is %.3f against exact search, on %d queries", *shown)

    def _open(self, folder: Path) -> None:
        """Read HNSW into memory; the lists of IVF are memory-mapped."""
        faiss = _faiss()
        flags = faiss.IO_FLAG_MMAP if self.kind == "ivf" else 0
        self._indexes = [faiss.read_index(str(path), flags) for path in sorted(folder.glob("*.faiss"))]

    def _parameters(self, depth: int) -> Any:
        faiss = _faiss()
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(LEAST_WIDTH, 2 * depth))
        lists = self._indexes[0].nlist
        enough = math.ceil(4 * depth * lists / len(self.documents))
        return faiss.SearchParametersIVF(nprobe=min(lists, max(LEAST_LISTS, enough)))

    def _keys(self, queries: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Score candidates ``[n, k]``, -1 for none: their keys, best first, 0 for none."""
        keys = np.zeros(rows.shape, dtype=np.uint64)
        for at, own in enumerate(rows):
            own = np.unique(own[own >= 0])
            vectors = np.ascontiguousarray(self.documents[own])
            keys[at, : len(own)] = candidate_keys(queries[at], vectors, self.data.corpus.id_rank[own])
        return np.ascontiguousarray(np.sort(keys, axis=1)[:, ::-1])

    def _ranking(self, keys: NDArray[np.uint64]) -> Ranking:
        scores, ranks = np.empty(keys.shape, np.float32), np.empty(keys.shape, np.int32)
        scores_and_ranks(np.ascontiguousarray(keys), scores, ranks)
        row_of = np.empty(len(self.data.corpus), dtype=np.int32)
        row_of[self.data.corpus.id_rank] = np.arange(len(row_of), dtype=np.int32)
        return Ranking(row_of[ranks], scores)


def approximate_ranking(index: ApproximateIndex, query_rows: IntArray, depth: int) -> Ranking:
    """Rank the corpus for some of the data's queries, each process its share, and log the recall.

    Args:
        index: the corpus.
        query_rows: int ``[n]``, rows of the query table.
        depth: how many documents to keep per query, at most the corpus.
    """
    index.note_recall(query_rows, depth)
    queries = index.encoder.encode_queries(index.data, query_rows)
    own = own_share(len(queries), TILE)
    parts = everywhere(lambda: index.search(queries[own], depth))
    columns = ([part.doc_rows for part in parts], [part.scores for part in parts])
    return Ranking(np.concatenate(columns[0]), np.concatenate(columns[1]))


def _in_main(write: Any) -> Any:
    """Let the main process alone write; where it fails, all fail."""
    return lambda folder: everywhere(lambda: write(folder) if process_index() == 0 else None)


def _build(kind: SearchIndex, documents: Vectors, folder: Path) -> None:
    """Build an index of documents ``[n, dimension]`` and write it to a folder."""
    try:
        if kind == "hnsw":
            _build_hnsw(documents, folder)
        else:
            _build_ivf(documents, folder)
    except RuntimeError as error:  # of FAISS, as where the disk is full
        reason = str(error).strip().splitlines()[-1:] or ["RuntimeError"]
        raise OperaError(f"search_index={kind}: FAISS cannot build the index in {folder}: {reason[0]}") from None


def _build_hnsw(documents: Vectors, folder: Path) -> None:
    """Build a graph in memory: vectors in fp16, and 4 bytes per link. One thread, so that it is always the same."""
    faiss = _faiss()
    count, dimension = documents.shape
    index = faiss.IndexHNSWSQ(dimension, faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.train(documents[:1])
    faiss.omp_set_num_threads(1)
    try:
        for tile in _tiles(documents, range(count)):
            index.add(tile)
    finally:
        faiss.omp_set_num_threads(torch.get_num_threads())
    faiss.write_index(index, str(folder / "0000.faiss"))


def _build_ivf(documents: Vectors, folder: Path) -> None:
    """Build inverted lists of vectors in fp16, in files of bounded size."""
    faiss = _faiss()
    count, dimension = documents.shape
    sample = min(count, PER_LIST * _most_lists(count), MEMORY // 2 // (4 * dimension))
    lists = max(1, min(_most_lists(count), sample // 39))  # FAISS wants 39 documents per list, or warns
    kinds = (faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False)
    index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(dimension), dimension, lists, *kinds)
    index.train(documents[np.linspace(0, count - 1, sample).astype(np.int64)])
    rows = max(TILE, FILE_BYTES // (2 * dimension) // TILE * TILE)
    for number, start in enumerate(range(0, count, rows)):
        index.reset()
        first = start
        for tile in _tiles(documents, range(start, min(start + rows, count))):
            index.add_with_ids(tile, np.arange(first, first + len(tile)))
            first += len(tile)
        faiss.write_index(index, str(folder / f"{number:04d}.faiss"))


def _faiss() -> Any:
    """Import FAISS when it is needed; it is an extra."""
    import faiss

    return faiss


def _most_lists(count: int) -> int:
    return max(1, round(2 * math.sqrt(count)))


def _tiles(documents: Vectors, rows: range) -> Iterator[NDArray[np.float32]]:
    starts = range(rows.start, rows.stop, TILE)
    for start in counted(starts, "indexing", len(starts), "parts", hidden=len(starts) < 10):
        yield np.ascontiguousarray(documents[start : min(start + TILE, rows.stop)])
