"""What is a decision about a label worth, and does a review's interval hold the true rate of wrong labels?

    OMP_NUM_THREADS=1 nice python reproduction/studies/review.py               # trains what is missing; hours
    OMP_NUM_THREADS=1 python reproduction/studies/review.py --tables           # prints the tables

Wrong pairs are added to train and dev as in false_labels.py. A run with all defaults but the guard is followed by
runs that get the true answer about 25 to 400 of its training pairs with ``--decisions``: ``suspicious`` pairs in the
order of ``suspicious_pairs.csv``, then random ones; or ``random`` pairs alone. Reads ``../shared``. Finished trainings
are stored, so the study can be stopped at any time.

The tables simulate reviews: somebody decides the first pairs of a page correctly. The pairs of a list and the others
are drawn at random for a page, so a simulation needs no more than how many of each are wrong.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import opera
from false_labels import MEASURES, is_wrong, noisy
from opera.core.rng import generator
from opera.data import RetrievalData
from opera.labels.review import in_order
from study import DATA, STATIC_MODEL, STORED, OverSettings, Results, Row, need, table_lines, words

SETS = ("scifact", "entailmentbank", "toollens")
NOISES = ("random:0.3", "hard:0.3")
METHODS = ("denoise", "ft")
ORDERS = ("suspicious", "random")
DECIDED = (400, 100, 200, 50, 25)
RUN = ("set", "noise", "method", "seed", "order", "decisions")
SETTINGS: Row = {"precision": "fp32", "guard": False, "negatives": "random", "trainer": {"save_steps": 1000}}
"""Checkpoints take time and are not read."""
FIRST: Row = {"order": "none", "decisions": 0}
FEWER = (1, 20)
"""The simulations divide the number of wrong pairs by these: most data sets have fewer than 30%."""
Z, FEW = 1.959963984540054, (0, 0.0513, 0.3554, 0.8177)
"""The normal quantile of a 95% interval; half of the 5% quantile of chi-squared with 2, 4 and 6 degrees of freedom."""
REVIEWS, REVIEWED = 500, (40, 80, 140)
"""Simulated reviews of a run, and how many pairs of its page somebody decides; a page has 140 by default."""


@lru_cache(maxsize=len(SETS) * len(NOISES))
def data_of(name: str, noise: str, seed: int) -> tuple[RetrievalData, RetrievalData]:
    """A data set without and with wrong pairs."""
    return opera.load_data(DATA / name), noisy(name, noise, seed)


def train(run: Row, decisions: list[Path] | None = None) -> tuple[Row, pd.DataFrame]:
    """Train once. Return measures on the clean test labels, and the training pairs: ``place`` is that in the list."""
    clean, data = data_of(run["set"], run["noise"], run["seed"])
    with TemporaryDirectory() as folder:
        trained = opera.adapt(
            data, model=STATIC_MODEL, out=Path(folder) / "run", method=run["method"], seed=run["seed"],
            decisions=decisions, **SETTINGS,
        )  # fmt: skip
        queries, pairs = trained.per_query(), trained.pairs().to_pandas()[["query_id", "doc_id", "first_rank"]]
        listed = pd.read_csv(trained.path / "suspicious_pairs.csv", dtype=str)
    places = {pair: place for place, pair in enumerate(zip(listed.query_id, listed.doc_id, strict=True))}
    pairs["place"] = [places.get(pair, len(places)) for pair in zip(pairs.query_id, pairs.doc_id, strict=True)]
    pairs["is_wrong"] = is_wrong(clean, pairs)
    return {
        **{measure: np.mean(queries[f"final {measure}"]) for measure in MEASURES},
        "pairs": len(pairs),
        "wrong": int(pairs.is_wrong.sum()),
        "listed": len(listed),
        "listed_wrong": int(pairs.is_wrong[pairs.place < len(listed)].sum()),
    }, pairs


def in_review_order(pairs: pd.DataFrame, order: str, seed: int) -> pd.DataFrame:
    """Order the training pairs of a run: at random, or the listed ones first, the worst first."""
    shuffled = pairs.iloc[generator(seed, "study.review.random").permutation(len(pairs))]
    return shuffled if order == "random" else shuffled.sort_values("place", kind="stable")


def write_decisions(path: Path, pairs: pd.DataFrame) -> None:
    """Write the truth about pairs as ``opera review`` saves decisions."""
    decision = np.where(pairs.is_wrong, "wrong", "correct")
    rank = pairs["first_rank"].fillna(0.5)
    pairs[["query_id", "doc_id"]].assign(decision=decision, first_rank=rank).to_csv(path, index=False)


def gains_of(results: Results) -> pd.DataFrame:
    """Points that decisions gained where both orders were run: a row for each set, seed and number of decisions.

    ``slope`` is nDCG@10 per 100 decisions: the line through zero that fits the numbers of decisions that were run best.
    """
    rows, setting = pd.DataFrame(results.rows.values()), ["noise", "method", "set", "seed"]
    gains = rows[rows.decisions > 0].merge(rows[rows.decisions == 0], on=setting, suffixes=("", " first"))
    gains = gains[gains.groupby([*setting, "decisions"])["order"].transform("size") == len(ORDERS)]
    for measure in MEASURES:
        gains[measure] = 100 * (gains[measure] - gains[f"{measure} first"])
    hundreds = gains.decisions / 100
    gains = gains.assign(product=hundreds * gains["nDCG@10"], square=hundreds**2)
    sums = gains.groupby([*setting, "order"])[["product", "square"]].transform("sum")
    return gains.assign(slope=sums["product"] / sums["square"])


def worth_table(gains: pd.DataFrame) -> str:
    """What decisions gain on each set and over all sets: means over the seeds, suspicious first / random."""
    lines = []
    for method, noise, name in itertools.product(METHODS, NOISES, [*SETS, None]):
        rows = gains[(gains.method == method) & (gains.noise == noise) & ((gains.set == name) | (name is None))]
        if rows.empty:
            continue
        last = (
            rows[rows.decisions == max(DECIDED)].groupby("order")[["decided_wrong", *MEASURES]].mean().loc[list(ORDERS)]
        )
        cells = [" / ".join(f"{value:.0f}" for value in last.decided_wrong)]
        cells += [" / ".join(map(signed, last[measure])) for measure in MEASURES]
        slopes = rows.drop_duplicates(["set", "seed", "order"]).pivot(index=["set", "seed"], columns="order")["slope"]
        samples = (slopes.suspicious, slopes.random, slopes.suspicious - slopes.random)
        cells += [interval(sample, name is None) for sample in samples]
        lines.append((name or "**all**", noise, method, *cells))
    measures = [f"{measure} after {max(DECIDED)}" for measure in MEASURES]
    per_100 = ("per 100 decisions: suspicious", "random", "difference")
    return table_lines(("data", "noise", "method", f"wrong among {max(DECIDED)}", *measures, *per_100), lines)


def interval(sample: pd.Series, with_ends: bool) -> str:
    """A mean, perhaps with its 95% interval over sets and seeds."""
    over = OverSettings.of(sample.to_numpy())
    ends = f" ({signed(over.low, 2)} to {signed(over.high, 2)})" if with_ends else ""
    return signed(over.difference, 2) + ends


def signed(points: float, digits: int = 1) -> str:
    """A difference in points."""
    return f"{points:+.{digits}f}".replace("-", "−")


def wilson(wrong: int, count: int, exact_ends: bool = True) -> tuple[float, float, float]:
    """The rate of wrong pairs among decided ones with its 95% interval, as review.html computes it.

    ``exact_ends`` are those of Brown, Cai and DasGupta (2001) for a few wrong or a few correct pairs.
    """
    z, rate = Z, wrong / count
    centre = (rate + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(rate * (1 - rate) / count + z**2 / (4 * count**2))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    few = (3 if count > 50 else 2) if exact_ends else 0
    if 0 < wrong <= few:
        low = FEW[wrong] / count
    if 0 < count - wrong <= few:
        high = 1 - FEW[count - wrong] / count
    return rate, low, high


def estimate(strata: Sequence[tuple[int, int, int]], exact_ends: bool = True) -> tuple[float, float, float]:
    """The rate of wrong pairs with its 95% interval (MOVER), as review.html computes it.

    Args:
        strata: the pairs of each stratum, how many of them are decided, and how many of these are wrong.
        exact_ends: as in :func:`wilson`.
    """
    total = sum(pairs for pairs, _, _ in strata)
    rates = [(pairs / total, *wilson(wrong, count, exact_ends)) for pairs, count, wrong in strata]
    rate = sum(weight * middle for weight, middle, _, _ in rates)
    below = np.sqrt(sum((weight * (middle - low)) ** 2 for weight, middle, low, _ in rates))
    above = np.sqrt(sum((weight * (high - middle)) ** 2 for weight, middle, _, high in rates))
    return rate, max(0.0, rate - below), min(1.0, rate + above)


def simulated_reviews(row: Row) -> list[Row]:
    """Review a run's pages: whether the intervals hold the true rate, with all wrong pairs and a few of them.

    A page has the pairs of the list, and of the others, in random order; so which of them are wrong does not matter.
    """
    listed, pairs = np.arange(row["listed"]), np.arange(row["pairs"])
    members = {"listed": listed, "unlisted": pairs[len(listed) :]}
    members = {name: stratum for name, stratum in members.items() if len(stratum)}
    reviews = []
    for number in range(REVIEWS):
        page = in_order(row["seed"] * REVIEWS + number, listed, members)
        for fewer, decided in itertools.product(FEWER, REVIEWED):
            wrong_listed = round(row["listed_wrong"] / fewer)
            wrong_unlisted = round((row["wrong"] - row["listed_wrong"]) / fewer)
            is_wrong = (pairs < wrong_listed) | ((pairs >= len(listed)) & (pairs < len(listed) + wrong_unlisted))
            strata = []
            for name, stratum in members.items():
                checked = [pair for pair, of in page[:decided] if of == name]
                strata.append((len(stratum), len(checked), int(is_wrong[checked].sum())))
            if all(count for _, count, _ in strata):
                (_, low, high), (_, alone_low, alone_high) = estimate(strata), estimate(strata, False)
                rate = is_wrong.mean()
                review = {name: row[name] for name in ("set", "noise", "seed")}
                review |= {"fewer": fewer, "decided": decided, "rate": rate, "width": high - low}
                reviews.append(review | {"holds": low <= rate <= high, "wilson": alone_low <= rate <= alone_high})
    return reviews


def interval_table(results: Results) -> str:
    """How many of the intervals hold the true rate: over all settings, and in the worst of them."""
    first_runs = results.select(method=METHODS[0], decisions=0)
    reviews = pd.DataFrame(review for row in first_runs for review in simulated_reviews(row))
    lines = []
    for (_, decided), rows in reviews.groupby(["fewer", "decided"]):
        by_setting = rows.groupby(["set", "noise"])[["holds", "wilson"]].mean()
        shares = [f"{rows[name].mean():.1%} ({by_setting[name].min():.1%})" for name in ("holds", "wilson")]
        lines.append((f"{rows.rate.mean():.1%}", str(decided), f"±{50 * rows.width.mean():.0f} points", *shares))
    heads = ("wrong labels", "pairs decided", "95% interval", "holds the true rate (lowest setting)", "Wilson's alone")
    return table_lines(heads, lines)


def main() -> None:
    """Train what is missing, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = {"--sets": SETS, "--noises": NOISES, "--methods": METHODS, "--seeds": "012"}
    for option, values in {**options, "--decided": map(str, DECIDED)}.items():
        parser.add_argument(option, type=words, default=list(values))
    parser.add_argument("--tables", action="store_true")
    asked = parser.parse_args()
    results = Results(STORED / "review.csv", RUN)
    if asked.tables:
        print(worth_table(gains_of(results)), interval_table(results), sep="\n")
        return
    need("../shared/data", "../shared/models")

    @cache
    def first_run(*run: Any) -> pd.DataFrame:
        first = {**dict(zip(RUN, run, strict=False)), **FIRST}
        facts, pairs = train(first)
        if not results.has(first):
            results.add(first, **facts)
            print(results.of(first), flush=True)
        return pairs

    for method, decided in itertools.product(asked.methods, map(int, asked.decided)):
        for seed, name, noise in itertools.product(map(int, asked.seeds), asked.sets, asked.noises):
            for order in ORDERS:
                run = dict(zip(RUN, (name, noise, method, seed, order, decided), strict=True))
                if results.has(run):
                    continue
                pairs = in_review_order(first_run(name, noise, method, seed), order, seed)[:decided]
                with TemporaryDirectory() as folder:
                    write_decisions(Path(folder) / "decisions.csv", pairs)
                    facts, _ = train(run, [Path(folder) / "decisions.csv"])
                results.add(run, **facts, decided_wrong=int(pairs.is_wrong.sum()))
                print(results.of(run), flush=True)


if __name__ == "__main__":
    main()
