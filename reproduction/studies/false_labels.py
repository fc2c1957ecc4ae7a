"""What do wrong labels cost, how well are they found, and what does ``denoise`` bring back?

    OMP_NUM_THREADS=1 python reproduction/studies/false_labels.py             # trains what is missing; hours
    OMP_NUM_THREADS=1 python reproduction/studies/false_labels.py --model minilm --noises clean,random:0.3 \
        --sets entailmentbank,scifact                                          # all-MiniLM-L6-v2: 10 minutes a run
    OMP_NUM_THREADS=1 python reproduction/studies/false_labels.py --tables     # fills docs/noisy-labels.md

Wrong pairs are added to train and to dev, as ``opera-paper noise`` does, until they are the fraction of all pairs
that ``--noises`` says. ``neighbour`` is for EntailmentBank alone, whose corpus is in the order of its explanations.
Every training has all defaults, including the guard; MiniLM trains 120 steps with 64 tokens. sp and sp+dp get the
fraction of correct pairs as k. Reads ``../shared``. Finished trainings are stored, so the study can be stopped at any
time.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import rankdata, ttest_1samp

import opera
from opera.data import Qrels, RetrievalData
from opera_paper.noise import NEEDS, add_wrong_pairs
from study import DATA, ROOT, STATIC_MODEL, STORED, Results, Row, fill, need, table_lines, words

MODELS: dict[str, tuple[str | Path, dict[str, Any]]] = {
    "static": (STATIC_MODEL, {"precision": "fp32"}),
    "minilm": ("minilm", {"max_steps": 120, "max_passage_length": 64, "max_query_length": 64}),
}
SETS = ("scifact", "entailmentbank", "toollens", "nfcorpus")
NOISES = ("clean", "random:0.1", "random:0.3", "random:0.5", "hard:0.3", "clicks:0.3", "neighbour:0.3")
METHODS, SHOWN = ("ft", "denoise", "sp", "sp+dp", "dp", "infobatch"), ("denoise", "sp", "sp+dp")
RESULTS = {"static": STORED / "false_labels.csv", "minilm": STORED / "false_labels_minilm.csv"}
PAGE = ROOT / "docs" / "noisy-labels.md"
RUN = ("set", "noise", "method", "seed")
MEASURES = ("nDCG@10", "R@20")
COLUMN = "final nDCG@10"


def noisy(name: str, noise: str, seed: int) -> RetrievalData:
    """A data set with wrong pairs in train and dev; ``noise`` is ``clean`` or, for example, ``random:0.3``."""
    data = opera.load_data(DATA / name)
    if noise == "clean":
        return data
    kind, fraction = noise.split(":")
    model = STATIC_MODEL if "model" in NEEDS[kind] else None
    return add_wrong_pairs(data, kind, float(fraction), seed, model=model)[0]


def _rows(split: Qrels) -> list[tuple[int, int]]:
    relevant = split.relevant()
    return list(zip(relevant.query_rows[relevant.query_index].tolist(), relevant.doc_rows.tolist(), strict=True))


def train(model: str, run: Row) -> Row:
    """Train once, and compare what the run says about its labels with the truth."""
    clean = opera.load_data(DATA / run["set"])
    source, settings = MODELS[model]
    if run["method"] in ("sp", "sp+dp"):
        settings = {"k": 1 - float(run["noise"].split(":")[1]), **settings}
    with TemporaryDirectory() as folder:
        trained = opera.adapt(
            noisy(run["set"], run["noise"], run["seed"]),
            model=source, out=Path(folder) / "run", method=run["method"], seed=run["seed"],
            negatives="random", **settings,
        )  # fmt: skip
        pairs, queries, record = trained.pairs().to_pandas(), trained.per_query(), trained.record
    wrong = is_wrong(clean, pairs)
    sampled, estimate, guard = pairs.first_rank.notna().to_numpy(), record.noisy_labels, record.guard
    listed = (pairs.probability_wrong > 0.5).to_numpy()
    return {
        "truth": wrong.mean(),
        "visited": sampled.mean(),
        **{name: getattr(estimate, name, None) for name in ("noise_rate", "low", "high")},
        "auc": auc(pairs.first_rank.to_numpy()[sampled], wrong[sampled]) if wrong.any() else None,
        "listed": int(listed.sum()),
        "listed_wrong": int((listed & wrong).sum()),
        "mixing_weight": guard.mixing_weight if guard is not None else None,
        **{f"{model} {m}": np.asarray(queries[f"{model} {m}"]) for m in MEASURES for model in ("fine_tuned", "final")},
    }


def is_wrong(clean: RetrievalData, pairs: Any) -> np.ndarray:
    """Mark the pairs of a data frame that the clean data set does not have: bool ``[N]``."""
    query_ids, doc_ids = clean.queries.ids(), clean.corpus.ids()
    known = {(query_ids[q], doc_ids[d]) for split in clean.splits.values() for q, d in _rows(split)}
    return np.array([pair not in known for pair in zip(pairs.query_id, pairs.doc_id, strict=True)])


def auc(p: np.ndarray, wrong: np.ndarray) -> float:
    """The probability that a wrong pair has a higher p than a correct one."""
    ranks, count = rankdata(p)[wrong].sum(), int(wrong.sum())
    return float((ranks - count * (count + 1) / 2) / (count * (len(p) - count)))


def has_run(name: str, noise: str, method: str) -> bool:
    """Whether the study has such a run: sp needs the noise rate, and neighbours need an ordered corpus."""
    told, ordered = method in ("sp", "sp+dp"), name == "entailmentbank" or not noise.startswith("neighbour")
    return ordered and not (told and noise == "clean")


def main() -> None:
    """Train what is missing, or fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, values in {"--sets": SETS, "--noises": NOISES, "--methods": METHODS, "--seeds": "012"}.items():
        parser.add_argument(option, type=words, default=list(values))
    parser.add_argument("--model", choices=MODELS, default="static")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.tables:
        fill(PAGE, {"noise": _table({model: Runs(Results(path, RUN)) for model, path in RESULTS.items()})})
        return
    need("../shared/data", "../shared/models")
    results = Results(RESULTS[options.model], RUN)
    for seed, method, noise, name in itertools.product(options.seeds, options.methods, options.noises, options.sets):
        run = dict(zip(RUN, (name, noise, method, int(seed)), strict=True))
        if has_run(name, noise, method) and not results.has(run):
            results.add(run, **train(options.model, run))
            print({column: np.mean(value) if isinstance(value, np.ndarray) else value
                   for column, value in results.of(run).items()}, flush=True)  # fmt: skip


class Runs:
    """Finished trainings by set, noise and method, in the order of their seeds."""

    def __init__(self, results: Results) -> None:
        self.rows: dict[tuple[str, str, str], list[Row]] = {}
        for row in sorted(results.rows.values(), key=lambda row: row["seed"]):
            self.rows.setdefault((row["set"], row["noise"], row["method"]), []).append(row)

    def mean(self, name: str, noise: str, method: str) -> float:
        """The mean over queries and seeds, in points."""
        return float(np.mean([row[COLUMN] for row in self.rows[name, noise, method]])) * 100

    def gains(self, name: str, noise: str, method: str) -> float:
        """Points that a method gains over ft: the mean over the seeds that both have."""
        rows, base = ({row["seed"]: row for row in self.rows[name, noise, m]} for m in (method, "ft"))
        seeds = rows.keys() & base.keys()
        return float(np.mean([np.subtract(rows[seed][COLUMN], base[seed][COLUMN]) for seed in seeds])) * 100

    def found(self, name: str, noise: str) -> tuple[str, str]:
        """The estimate of the noise rate by denoise, and how many of the pairs that it lists are wrong."""
        rows = self.rows[name, noise, "denoise"]
        rate, listed, wrong = (np.mean([row[key] for row in rows]) for key in ("noise_rate", "listed", "listed_wrong"))
        return f"{100 * rate:.0f}", f"{100 * wrong / listed:.0f}"


def _table(models: dict[str, Runs]) -> str:
    """What wrong labels cost ft, what methods bring back, and how well they are found: means over data sets."""
    rows = [(noise, noise, models["static"]) for noise in NOISES[1:-1]]
    rows.append((f"{NOISES[2]}, MiniLM", NOISES[2], models["minilm"]))
    heads = ("wrong labels", "`ft` loses", *(f"`{method}`" for method in SHOWN), "estimate", "precision")
    return table_lines(heads, [(title, *_cells(runs, noise)) for title, noise, runs in rows])


def _cells(runs: Runs, noise: str) -> list[str]:
    names = [name for name in SETS if (name, noise, "ft") in runs.rows]
    lost = [runs.mean(name, "clean", "ft") - runs.mean(name, noise, "ft") for name in names]
    cells = [f"{np.mean(lost):.1f}"]
    for method in SHOWN:
        gains = [runs.gains(name, noise, method) for name in names if (name, noise, method) in runs.rows]
        cells.append(_gain(gains) if gains else "")
    estimates, wrong = zip(*(runs.found(name, noise) for name in names), strict=True)
    return [*cells, f"{'/'.join(estimates)}%", f"{'/'.join(wrong)}%"]


def _gain(gains: list[float]) -> str:
    """The mean over data sets; bold if a t-test over them has p < 0.05."""
    mean = f"{np.mean(gains):+.1f}".replace("-", "−")
    return f"**{mean}**" if ttest_1samp(gains, 0).pvalue < 0.05 else mean


if __name__ == "__main__":
    main()
