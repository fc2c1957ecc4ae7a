"""What one step of ``dp``'s sampler costs: OPERA's way and the direct one, from 14,166 to 100 million pairs.

    OMP_NUM_THREADS=1 python benchmarks/sampler.py [PAIRS ...]

A step observes the scores of the last one, moves both thresholds, and draws 64 queries with a document and a negative
each, at I_u = 1. The direct way computes the mean of every query, partitions the means, takes the quantile of all pairs
and builds the pool. Both ways alternate in one process on the same scores, and their thresholds must lie in the same
buckets: the direct way is the oracle. Then OPERA's way continues alone, first with warm caches, then with caches that
other work fills between steps. Times are those of the processor, so other programs hardly count. 100 million pairs take
12 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core

import numpy as np

from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores, Plan
from opera.methods.draws import bucket_of
from opera.methods.dynamic import DynamicPruning
from opera.training.documents import DocumentPool
from opera.training.negatives import RandomNegatives
from opera.training.sampler import DataSetSampler, Observations, Sampler

SIZES = (14_166, 140_085, 741_436, 10_000_000, 100_000_000)
QUERIES_PER_PAIR = 109_810 / 140_085  # FEVER's
BATCH, DOCUMENTS = 64, 5_000_000


def synthetic(n_pairs: int) -> tuple[TrainingPairs, PairScores]:
    """Make pairs with FEVER's share of queries, and scores."""
    rng = np.random.default_rng(0)
    n_queries = max(1, int(n_pairs * QUERIES_PER_PAIR))
    counts = 1 + np.bincount(rng.integers(0, n_queries, n_pairs - n_queries), minlength=n_queries)
    docs = rng.integers(0, DOCUMENTS, n_pairs).astype(np.int32)
    pairs = TrainingPairs.from_arrays(np.repeat(np.arange(n_queries, dtype=np.int32), counts), docs)
    return pairs, PairScores(pairs, rng.random(n_pairs, dtype=np.float32), rng.exponential(1, n_pairs))


class Direct:
    """The direct way: everything computed again at each step, over all queries and pairs."""

    def __init__(self, pairs: TrainingPairs, scores: PairScores, method: DynamicPruning) -> None:
        self.pairs, self.method = pairs, method
        self.similarity, self.loss = scores.similarity.copy(), scores.loss.copy()
        self.query_threshold, self.threshold = 0.0, 0.0

    def step(self, step: int, seen: tuple[np.ndarray, np.ndarray, np.ndarray] | None) -> None:
        """Observe, rank, build the pool, draw."""
        if seen is not None:
            ids, similarity, loss = seen
            self.similarity[ids], self.loss[ids] = similarity, loss
        pairs, method, rng = self.pairs, self.method, generator(0, "direct", step)
        schedule = method.schedule(step)
        score = -pairs.sum_by_query(self.loss) / pairs.positives_per_query
        top = int(schedule["r"] * pairs.n_queries)
        order = np.argpartition(score, pairs.n_queries - top)
        others = rng.choice(order[:-top], method.pool_size - top, replace=False)
        pool = np.concatenate([order[-top:], others])
        self.query_threshold = score[order[-top:]].min()
        self.threshold = float(np.quantile(self.similarity, 1 - schedule["v"], method="lower"))
        for query in rng.choice(pool, BATCH, replace=False):
            documents = slice(pairs.query_offsets[query], pairs.query_offsets[query + 1])
            weight = np.where(self.similarity[documents] > self.threshold, schedule["beta"], 1.0)
            rng.choice(len(weight), p=weight / weight.sum())
        rng.integers(DOCUMENTS, size=BATCH)


def measure(n_pairs: int, steps: int) -> dict[str, Any]:
    """Time both ways alternately on the same scores, then OPERA's alone with warm and with cold caches: medians."""
    pairs, scores = synthetic(n_pairs)
    cls = METHODS["dp"]
    method = cls(pairs, Plan(0, 1000, BATCH), cls.settings_class(), scores)
    assert isinstance(method, DynamicPruning)
    negatives = RandomNegatives(DocumentPool(np.arange(DOCUMENTS)))
    sampler = Sampler([DataSetSampler(method, negatives)], pairs, method.plan, BATCH, n_negatives=1)
    rng, seen = np.random.default_rng(1), None
    direct, other = Direct(pairs, scores, method), np.ones(64 * 2**20 // 8)
    both = 10 if n_pairs < 50_000_000 else 4
    times: dict[str, list[float]] = {"direct": [], "both": [], "warm": [], "cold": []}
    for step in range(both + 2 * steps):
        kind = "both" if step < both else "warm" if step < both + steps else "cold"
        if kind == "both":
            start = time.process_time()
            direct.step(step, seen)
            times["direct"].append(time.process_time() - start)
        if kind == "cold":
            other += 1  # what a model's own work does to the caches between two steps
        start = time.process_time()
        drawn = sampler.sample_step(step)
        times[kind].append(time.process_time() - start)
        if kind == "both":
            assert method._top.bucket == bucket_of(direct.query_threshold), "query thresholds differ"
            assert method._threshold == bucket_of(direct.threshold), "document thresholds differ"
        ids = np.unique(drawn.pair_ids)
        seen = (ids, rng.random(len(ids), dtype=np.float32), rng.exponential(1, len(ids)).astype(np.float32))
        again = np.searchsorted(ids, drawn.pair_ids)
        values = seen[1][again], seen[2][again], rng.random(len(again))
        sampler.observe(step, Observations(drawn.pair_ids, *values))
    median = {kind: float(np.median(values[1:])) * 1e3 for kind, values in times.items()}
    return {
        "pairs": n_pairs,
        "queries": pairs.n_queries,
        "direct_ms": median["direct"],
        "warm_ms": median["warm"],
        "cold_ms": median["cold"],
    }


def main() -> None:
    """Measure, and print a line of JSON per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int, nargs="*", default=SIZES)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    for size in arguments.pairs:
        print(json.dumps(measure(size, arguments.steps)), flush=True)


if __name__ == "__main__":
    main()
