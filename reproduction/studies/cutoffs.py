"""When not to answer: does a cut-off for 80% relevant answers give 80% on other queries?

    OMP_NUM_THREADS=1 python reproduction/studies/cutoffs.py             # trains what is missing, then fills the table
    OMP_NUM_THREADS=1 python reproduction/studies/cutoffs.py --tables    # makes the table of the stored scores

Each data set is trained once, with all defaults. The score of every test query's best document and its relevance are
stored. The test queries are then split 50 times at random: one half chooses the cut-off, the other half measures it.
Reads ``../shared``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import opera
from opera.core.rng import generator
from opera.run_folder.cutoffs import fit_cutoffs
from study import DATA, ROOT, STATIC_MODEL, STORED, Results, Row, fill, need, table_lines, words

SETS = ("scifact", "nfcorpus", "entailmentbank")
SPLITS = 50
TARGET = 0.8
"""The precision that a cut-off is to reach."""
PAGE = ROOT / "docs" / "deploy.md"


class Split(NamedTuple):
    """A cut-off that one half of the queries chose.

    Attributes:
        chosen: the precision on the half that chose.
        answered: how many queries of the other half have an answer.
        relevant: how many of these answers are relevant.
        queries: the number of queries of the other half.
    """

    chosen: float
    answered: int
    relevant: int
    queries: int


def measure(name: str) -> Row:
    """Train on a data set; return the score of each test query's best document, and whether it is relevant."""
    with TemporaryDirectory() as folder:
        run = opera.adapt(DATA / name, model=STATIC_MODEL, out=Path(folder) / "run", precision="fp32")
        result = opera.evaluate(DATA / name, model=run.path, measures=["Success@1"], precision="fp32")
    return {
        "queries": len(result.query_ids),
        "relevant_share": result.measures["Success@1"],
        "score": result.ranking.scores[:, 0],
        "relevant": result.per_query["Success@1"],
    }


def choose_and_measure(row: Row) -> list[Split]:
    """Choose a cut-off on one half of the queries and measure it on the other, for each split that reaches it."""
    scores, is_relevant, results = row["score"], row["relevant"] > 0, []
    for seed in range(SPLITS):
        order = generator(seed, "study.cutoffs").permutation(len(scores))
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        cutoff = fit_cutoffs(scores[first], is_relevant[first]).cutoff(TARGET)
        if cutoff is not None:
            answers = second[scores[second] >= cutoff.score]
            relevant = int(is_relevant[answers].sum())
            results.append(Split(cutoff.precision, len(answers), relevant, len(second)))
    return results


def cells(splits: list[Split]) -> list[str]:
    """Say how many splits reach the target, what they answer, and their precision on the half that chose and on the
    other half; and on how many other halves it is below the target."""
    if not splits:
        return ["0", "", "", ""]
    chosen, answered, relevant, queries = (np.array(values) for values in zip(*splits, strict=True))
    below = int((relevant < TARGET * answered).sum())
    precision = f"{chosen.mean():.0%} → {relevant.sum() / max(1, answered.sum()):.0%}"
    return [str(len(splits)), f"{answered.sum() / queries.sum():.0%}", precision, str(below)]


def cutoffs_table(results: Results, sets: list[str]) -> str:
    """A line per data set."""
    heads = ["data set", "splits", "answered", "relevant", "below 80%"]
    return table_lines(heads, [[name, *cells(choose_and_measure(results.of({"set": name})))] for name in sets])


def main() -> None:
    """Train what is missing, then fill the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="train nothing; make the table of the stored results")
    parser.add_argument("--sets", type=words, default=list(SETS))
    options = parser.parse_args()
    results = Results(STORED / "cutoffs.csv", ["set"])
    if not options.tables:
        need("../shared/data", "../shared/models")
        for name in options.sets:
            if not results.has({"set": name}):
                results.add({"set": name}, **measure(name))
    fill(PAGE, {"cutoffs": cutoffs_table(results, options.sets)})


if __name__ == "__main__":
    main()
