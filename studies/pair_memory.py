"""Bytes per training pair that each part of a run allocates: at its peak, and kept.

    OMP_NUM_THREADS=1 python studies/pair_memory.py 100000 1000000 10000000

The numbers are those of pairs, 100 per query. What NumPy allocates is counted, on top of what was there before; so a
column for each number of pairs shows whether anything grows faster than they do.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from opera.data.qrels import Qrels
from opera.methods import METHODS, PairScores, Plan
from opera.training.sampler import PairSampler, SamplingRecorder
from opera.training_set.documents import DocumentPool, KnownPositives
from opera.training_set.negatives import RandomNegatives
from page import table_lines

DOCUMENTS, PER_QUERY, BATCH = 2**20, 100, 64


def measure(n_pairs: int) -> dict[str, tuple[float, float]]:
    """Allocate part after part; return bytes per pair of each, at its peak and kept."""
    rng, found = np.random.default_rng(0), {}

    def part(name: str, work: Callable[[], Any]) -> Any:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = work()
        now, peak = tracemalloc.get_traced_memory()
        found[name] = ((peak - before) / n_pairs, (now - before) / n_pairs)
        return result

    queries = np.repeat(np.arange(n_pairs // PER_QUERY, dtype=np.int32), PER_QUERY)
    documents = np.concatenate([rng.choice(DOCUMENTS, PER_QUERY, replace=False) for _ in range(n_pairs // PER_QUERY)])
    documents, grades = documents.astype(np.int32), np.ones(n_pairs, dtype=np.int32)
    similarity, loss = rng.random(n_pairs, dtype=np.float32), rng.random(n_pairs, dtype=np.float32)
    tracemalloc.start()
    qrels = part("qrels, sorted", lambda: Qrels.from_arrays(queries, documents, grades))
    relevant = part("relevant ones", qrels.relevant)
    pairs = part("training pairs", relevant.pairs)
    known = part("known positives", lambda: KnownPositives(pairs, DOCUMENTS))
    part("known positives of the random set", lambda: known.among(np.arange(0, DOCUMENTS, 2048)))
    scores = part("scores", lambda: PairScores(pairs, similarity, loss))
    settings = METHODS["dp"].settings_class()
    method: Any = part("dp's counts", lambda: METHODS["dp"](pairs, Plan(0, 1000, BATCH), settings, scores))
    sampler = PairSampler(method, pairs, RandomNegatives(DocumentPool(DOCUMENTS)), 1, BATCH)
    part("a step's draw", lambda: sampler.draw_step(0) and None)
    part("a snapshot of the probabilities", lambda: SamplingRecorder(method, 50).record(0))
    part("state for a checkpoint", sampler.state_dict)
    part("counts of draws", lambda: sampler.times_drawn() is None)
    tracemalloc.stop()
    return found


def main() -> None:
    """Measure each number of pairs and print the table."""
    sizes = [int(size) for size in sys.argv[1:]] or [100_000, 1_000_000]
    measure(1000)  # loads the compiled loops
    measured = {size: measure(size) for size in sizes}
    heads = ["part", *(f"{size:,} pairs" for size in sizes)]
    names = measured[sizes[0]]
    rows = [[name, *("{:.1f}, {:.1f}".format(*map(abs, measured[size][name])) for size in sizes)] for name in names]
    print(table_lines(heads, rows))


if __name__ == "__main__":
    main()
