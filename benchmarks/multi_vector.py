"""Search with vectors of tokens: OPERA against sentence-transformers' MaxSim and PyLate's PLAID index, on the CPU.

    OMP_NUM_THREADS=1 python benchmarks/multi_vector.py MODEL ../shared/data/scifact [--pylate PYTHON]

MODEL is a multi-vector model, such as a run with ``--kind multi-vector``. All search the same vectors, which OPERA
encodes. ``candidates`` is OPERA's search of a corpus above 20,000 documents. PyLate needs other versions, so PYTHON
is the Python of another environment, with ``pip install pylate``. The benchmark adds the processor time of all threads,
which other programs disturb little. ``found`` is the share of the exact 10 best documents.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.util import maxsim

import opera
from opera.data import TextTable
from opera.deployment.onnx import instruction_set
from opera.retrieval.encoder import open_encoder
from opera.retrieval.kinds import candidates
from opera.retrieval.kinds.rows import NearestRows, TokenRows
from opera.retrieval.nearest import exact_search

QUERIES, DOCUMENTS, DEPTH, ROUNDS = 20, 2_000, 10, 3
BLOCK = 256
"""Documents that sentence-transformers compares at once."""
WITH_PYLATE = Path(__file__).with_name("with_pylate.py")


def lists(rows: TokenRows) -> list[torch.Tensor]:
    """A tensor for each text."""
    bounds = zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
    return [torch.from_numpy(rows.vectors[start:end].astype(np.float32)) for start, end in bounds]


def by_library(queries: list[torch.Tensor], documents: list[torch.Tensor]) -> np.ndarray:
    """The best documents by sentence-transformers' own similarity, in blocks."""
    blocks = [maxsim(queries, documents[start : start + BLOCK]) for start in range(0, len(documents), BLOCK)]
    return torch.cat(blocks, 1).topk(DEPTH).indices.numpy()


def timed(search: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """The median seconds of the processor, and the best documents."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        best = search()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds)), best


def by_pylate(python: str, queries: TokenRows, documents: TokenRows) -> dict[str, Any]:
    """Let PyLate index the documents and search."""
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in {"queries": queries, "documents": documents}.items():
            np.savez(Path(folder, name), vectors=rows.vectors, offsets=rows.offsets)
        command = [python, str(WITH_PYLATE), folder, str(DEPTH), str(ROUNDS)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(result.stdout.splitlines()[-1]))


def main() -> None:
    """Print a line per search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--pylate", metavar="PYTHON")
    options = parser.parse_args()
    data, encoder = opera.load_data(options.data), open_encoder(Path(options.model))
    query_rows = data.judged_qrels("test").query_rows[:QUERIES]
    queries, documents = encoder.encode_queries(data, query_rows)[:], encoder.encode_corpus(data).rows[:DOCUMENTS]
    ids = TextTable.from_texts({f"{number:06d}": "" for number in range(len(documents))})
    query_list, document_list = lists(queries), lists(documents)
    searches = {
        "sentence-transformers": lambda: by_library(query_list, document_list),
        "OPERA": lambda: exact_search(NearestRows(queries, ids, DEPTH, None), documents).doc_rows,
        "OPERA, candidates": lambda: (
            exact_search(candidates.NearestCandidates(queries, ids, DEPTH), documents).doc_rows
        ),
    }
    print(
        f"{instruction_set()}: {len(queries)} queries, {len(documents):,} documents, {len(documents.vectors):,} vectors"
    )
    exact = searches["OPERA"]()

    def show(name: str, seconds: float, best: np.ndarray, size: int) -> None:
        found = np.mean([np.isin(*pair) for pair in zip(exact, best, strict=True)])
        line = f"{name:24} {1000 * seconds / len(queries):8.1f} ms per query  {found:6.1%} found"
        print(f"{line}  {size / len(documents):7,.0f} bytes per document", flush=True)

    for name, search in searches.items():
        is_float32 = name == "sentence-transformers"
        show(name, *timed(search), documents.vectors.nbytes * (2 if is_float32 else 1))
    if options.pylate:
        result = by_pylate(options.pylate, queries, documents)
        name = f"PyLate {result['version']}, PLAID"
        show(name, result["seconds"], np.array(result["best"]), result["bytes"])
        print(f"PyLate needs {result['build']:.1f} s of the processor to build its index")


if __name__ == "__main__":
    main()
