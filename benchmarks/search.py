"""Exact search by OPERA, FAISS's flat index and semantic_search, by turns.

1,000 queries and random unit vectors of 384 dimensions, in files. Each engine runs in a process of its own, which
gives its peak of resident memory. OPERA reads the files as it searches; FAISS and semantic_search hold the vectors in
memory, as they do.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opera.retrieval.vectors import Embeddings, Shards

QUERIES, DIMENSION = 1000, 384
DEPTHS = (10, 100)
ENGINES = ("opera", "faiss", "semantic_search")
Search = Callable[[int], np.ndarray]


def write_vectors(folder: Path, count: int, seed: int) -> None:
    """Write random unit vectors as OPERA's cache holds them, shard by shard."""
    shards, rng = Shards.of(count), np.random.default_rng(seed)
    folder.mkdir()
    for number, name in enumerate(shards.names()):
        rows = shards.rows(number)
        part = rng.standard_normal((rows.stop - rows.start, DIMENSION), dtype=np.float32)
        np.save(folder / name, part / np.linalg.norm(part, axis=1, keepdims=True))


def opera_search(queries: np.ndarray, vectors: Embeddings) -> Search:
    """OPERA's, from the files."""
    import pyarrow as pa

    from opera.data import TextTable
    from opera.data.texts import TEXT_SCHEMA
    from opera.retrieval.nearest import NearestDocuments, exact_search

    ids = [f"{number:07d}" for number in range(len(vectors))]
    empty = [""] * len(ids)
    table = TextTable(pa.table({"id": ids, "title": empty, "text": empty}, schema=TEXT_SCHEMA))
    return lambda depth: exact_search(NearestDocuments(queries, table, depth), vectors).doc_rows


def faiss_search(queries: np.ndarray, vectors: Embeddings) -> Search:
    """FAISS's IndexFlatIP."""
    import faiss

    faiss.omp_set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    index = faiss.IndexFlatIP(DIMENSION)
    for start in range(0, len(vectors), 50_000):
        index.add(vectors[start : start + 50_000])
    return lambda depth: index.search(queries, depth)[1]


def library_search(queries: np.ndarray, vectors: Embeddings) -> Search:
    """sentence_transformers.util.semantic_search, with the dot product."""
    import torch
    from sentence_transformers.util import dot_score, semantic_search

    wanted, corpus = torch.from_numpy(queries), torch.from_numpy(vectors[:])

    def search(depth: int) -> np.ndarray:
        results = semantic_search(wanted, corpus, top_k=depth, score_function=dot_score)
        return np.array([[hit["corpus_id"] for hit in hits] for hits in results])

    return search


def serve(engine: str, folder: Path, size: int) -> None:
    """Be an engine: for each line with a depth, search once and print the seconds; at the end the memory, in bytes."""
    import resource

    queries = Embeddings(folder / "queries", Shards.of(QUERIES))[:]
    vectors = Embeddings(folder / str(size), Shards.of(size))
    if engine == "faiss":
        search = faiss_search(queries, vectors)
    elif engine == "semantic_search":
        search = library_search(queries, vectors)
    else:
        search = opera_search(queries, vectors)
    for line in sys.stdin:
        start = time.perf_counter()
        rows = search(int(line))
        print(json.dumps([time.perf_counter() - start, rows[:5].tolist()]), flush=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)


def measure(size: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Write vectors, and let the engines search; return figures by engine, for each depth."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        write_vectors(folder / "queries", QUERIES, 1)
        write_vectors(folder / str(size), size, 0)
        return search_by_turns(folder, size, threads, rounds)


def search_by_turns(folder: Path, size: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Let the engines search by turns; the first search of each counts for nothing, and all must find the same."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    children = {}
    for engine in ENGINES:
        command = [sys.executable, __file__, engine, str(folder), str(size)]
        children[engine] = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(engine: str, depth: int) -> tuple[float, list[list[int]]]:
        child = children[engine]
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{depth}\n")
        child.stdin.flush()
        seconds, rows = json.loads(child.stdout.readline())
        return seconds, rows

    seconds: dict[tuple[str, int], list[float]] = {(engine, depth): [] for engine in ENGINES for depth in DEPTHS}
    for turn in range(rounds + 1):
        for depth in DEPTHS:
            rankings = {}
            for engine in ENGINES:
                taken, rankings[engine] = ask(engine, depth)
                seconds[engine, depth] += [taken] if turn else []
            assert rankings["opera"] == rankings["faiss"] or size > 10**4, "the engines found other documents"
    peaks = {engine: int(child.communicate()[0]) for engine, child in children.items()}
    return [figures(size, depth, {engine: seconds[engine, depth] for engine in ENGINES}, peaks) for depth in DEPTHS]


def figures(size: int, depth: int, seconds: dict[str, list[float]], peaks: dict[str, int]) -> dict[str, Any]:
    """Summarise the turns of a size and a depth; a ratio is the median of the ratios of the turns."""
    row: dict[str, Any] = {"documents": size, "depth": depth}
    for engine in ENGINES:
        ratios = [other / opera for opera, other in zip(seconds["opera"], seconds[engine], strict=True)]
        row[engine] = {
            "queries_per_second": round(QUERIES / statistics.median(seconds[engine])),
            "gigabytes": round(peaks[engine] / 1e9, 2),
            "ratio": statistics.median(ratios),
        }
    return row


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
