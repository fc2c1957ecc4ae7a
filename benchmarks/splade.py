"""Encode and search with SPLADE: OPERA against sentence-transformers, on the CPU.

    OMP_NUM_THREADS=1 python benchmarks/splade.py ../shared/models/splade-tiny ../shared/data/scifact

Encodes the same documents with both, alternating, and prints the medians of the ratios: sentence-transformers without
and with a ``chunk_size`` of its pooling. Each memory is the peak of a process of its own, above that of a process that
only loads the model. The search compares SciPy's products with sentence-transformers' own similarity in blocks.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import opera
from opera.data import TextTable
from opera.deployment.onnx import instruction_set
from opera.retrieval.kinds import Sparse
from opera.retrieval.models import load_model
from opera.retrieval.nearest import exact_search

DOCUMENTS, BATCH, ROUNDS, LENGTH, CHUNK = 64, 32, 5, 256, 32
SEARCHED, DEPTH = 300, 10


def load(folder: str) -> Any:
    """Load the model, and limit its texts to :data:`LENGTH` tokens."""
    model = load_model(Path(folder), "cpu", "sparse")
    model.max_seq_length = LENGTH
    return model


def encode(model: Any, way: str, texts: list[str]) -> Any:
    """Encode texts by ``opera``, ``library``, or ``chunks``: the library with a chunk size."""
    if way == "opera":
        return Sparse.encode(model, texts, "document", "", BATCH)
    model.splade_pooling_chunk_size = CHUNK if way == "chunks" else None
    return model.encode_document(texts, batch_size=BATCH, show_progress_bar=False)


def documents(data: str) -> list[str]:
    """The first documents of a data set."""
    return opera.load_data(data).corpus.texts(slice(0, DOCUMENTS))


def seconds(work: Callable[[], Any]) -> float:
    """The seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_megabytes(model: str, data: str, way: str) -> float:
    """The peak memory of a process that loads the model and encodes."""
    command = [sys.executable, __file__, model, data, "--memory", way]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--memory", choices=("none", "opera", "library", "chunks"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    texts, model = documents(options.data), load(options.model)
    if options.memory is not None:
        if options.memory != "none":
            encode(model, options.memory, texts)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    print(f"{instruction_set()}: {DOCUMENTS} documents of at most {LENGTH} tokens, batches of {BATCH}")
    ways = ("opera", "library", "chunks")
    # before this process grows: a child's peak begins with the size of its parent
    alone = peak_megabytes(options.model, options.data, "none")
    memory = {way: peak_megabytes(options.model, options.data, way) - alone for way in ways}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            times[way].append(seconds(lambda way=way: encode(model, way, texts)))
    for way in ways:
        ratio = statistics.median(other / ours for other, ours in zip(times[way], times["opera"], strict=True))
        print(f"{way:8} {statistics.median(times[way]):6.2f} s  {ratio:5.2f}x  {memory[way]:7.0f} MB above the model")
    compare_searches(model, texts)


def compare_searches(model: Any, texts: list[str]) -> None:
    """Search copies of the documents by both, and print the ratio."""
    rows = encode(model, "opera", texts)
    many = rows[np.resize(np.arange(len(rows)), 20_000)]
    queries = rows[np.resize(np.arange(len(rows)), SEARCHED)]
    ids = TextTable.from_texts({f"{number:05d}": "" for number in range(len(many))})
    dense_queries = model.encode_document(texts, batch_size=BATCH, show_progress_bar=False).to_dense()
    from sentence_transformers.util import semantic_search

    query_tensor = dense_queries[np.resize(np.arange(len(rows)), SEARCHED)].to_sparse()
    document_tensor = dense_queries[np.resize(np.arange(len(rows)), 2_000)].to_sparse()
    ours = seconds(lambda: exact_search(Sparse.nearest(queries, ids, DEPTH, "cpu", "dot", None), many))
    library = 10 * seconds(
        lambda: semantic_search(query_tensor, document_tensor, top_k=DEPTH, score_function=model.similarity)
    )
    print(f"search, {SEARCHED} queries, 20,000 documents: {ours:.2f} s, library {library:.2f} s (10 x 2,000 documents)")


if __name__ == "__main__":
    main()
