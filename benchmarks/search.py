"""Queries per second of exact search: OPERA, semantic_search and FAISS's flat index.

    python benchmarks/search.py [--sizes 3633 100000 1000000] [--rounds 3]

1,000 queries and random unit vectors of 384 dimensions, in files. Each engine runs in a process of its own, which
gives its peak of resident memory; they search by turns. OPERA reads the files as it searches; FAISS and semantic_search
hold the vectors in memory, as they do. Writes benchmarks/search.json and prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from opera.retrieval.vectors import Embeddings, Shards  # noqa: E402
from page import table_lines  # noqa: E402

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
    from opera.retrieval.vectors import exact_search

    ids = [f"{number:07d}" for number in range(len(vectors))]
    empty = [""] * len(ids)
    table = TextTable(pa.table({"id": ids, "title": empty, "text": empty}, schema=TEXT_SCHEMA))
    return lambda depth: exact_search(queries, vectors, table, depth).doc_rows


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


def measure(folder: Path, size: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Let the engines search by turns; the first search of each counts for nothing, and all must find the same."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    children = {}
    for engine in ENGINES:
        command = [sys.executable, __file__, "--engine", engine, "--folder", str(folder), "--sizes", str(size)]
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
    return [
        row_of(size, threads, depth, {engine: seconds[engine, depth] for engine in ENGINES}, peaks) for depth in DEPTHS
    ]


def row_of(
    size: int, threads: int, depth: int, seconds: dict[str, list[float]], peaks: dict[str, int]
) -> dict[str, Any]:
    """The figures of a size, a number of threads and a depth; ratios are medians of those of each turn."""
    row: dict[str, Any] = {"documents": size, "threads": threads, "depth": depth}
    for engine in ENGINES:
        row[f"{engine} queries/s"] = QUERIES / statistics.median(seconds[engine])
        row[f"{engine} bytes"] = peaks[engine]
    for engine in ENGINES[1:]:
        ratios = [other / opera for opera, other in zip(seconds["opera"], seconds[engine], strict=True)]
        row[f"against {engine}"] = statistics.median(ratios)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Lines of the table."""
    head = ["documents", "k", "threads", "OPERA, queries/s", "FAISS flat", "semantic_search", "OPERA / FAISS flat",
            "OPERA / semantic_search", "GB of memory, engine by engine"]  # fmt: skip
    lines = [
        [
            f"{row['documents']:,}",
            str(row["depth"]),
            str(row["threads"]),
            *(f"{row[f'{engine} queries/s']:,.0f}" for engine in ENGINES),
            *(f"{row[f'against {engine}']:.2f}" for engine in ENGINES[1:]),
            ", ".join(f"{row[f'{engine} bytes'] / 1e9:.2f}" for engine in ENGINES),
        ]
        for row in rows
    ]
    return table_lines(head, lines)


def main() -> None:
    """Measure, and write the figures and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[3633, 100_000, 1_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.engine:
        serve(options.engine, options.folder, options.sizes[0])
        return
    rows = []
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        write_vectors(folder / "queries", QUERIES, 1)
        for size in options.sizes:
            write_vectors(folder / str(size), size, 0)
            for threads in options.threads:
                rows += measure(folder, size, threads, options.rounds)
                print(
                    *(f"{name} {value:,.2f}" for row in rows[-2:] for name, value in row.items()), sep=", ", flush=True
                )
    record = {"rounds": options.rounds, "queries": QUERIES, "dimension": DIMENSION, "machine": platform.processor(),
              "cpus": os.cpu_count(), "python": platform.python_version(), "rows": rows}  # fmt: skip
    (ROOT / "benchmarks/search.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
