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
from opera.experiments.analysis.significance import holm
from opera_paper.noise import NEEDS, add_wrong_pairs
from study import DATA, ROOT, STATIC_MODEL, STORED, Results, Row, fill, need, table_lines, words

MODELS: dict[str, tuple[str | Path, dict[str, Any]]] = {
    "static": (STATIC_MODEL, {"precision": "fp32"}),
    "minilm": ("minilm", {"max_steps": 120, "max_passage_length": 64, "max_query_length": 64}),
}
SETS = ("scifact", "entailmentbank", "toollens", "nfcorpus")
NOISES = ("clean", "random:0.1", "random:0.3", "random:0.5", "hard:0.3", "clicks:0.3", "neighbour:0.3")
METHODS = ("ft", "denoise", "sp", "sp+dp", "dp", "infobatch")
RESULTS = {"static": STORED / "false_labels.csv", "minilm": STORED / "false_labels_minilm.csv"}
PAGE = ROOT / "docs" / "noisy-labels.md"
RUN = ("set", "noise", "method", "seed")
MEASURES = ("nDCG@10", "R@20")


def noisy(name: str, noise: str, seed: int) -> RetrievalData:
    """A data set with wrong pairs in train and dev; ``noise`` is ``clean``, or a kind and a share: ``random:0.3``."""
    data = opera.load_data(DATA / name)
    if noise == "clean":
        return data
    kind, share = noise.split(":")
    model = STATIC_MODEL if "model" in NEEDS[kind] else None
    return add_wrong_pairs(data, kind, float(share), seed, model=model)[0]


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
            model=source, out=Path(folder) / "run", method=run["method"], seed=run["seed"], **settings,
        )  # fmt: skip
        pairs, queries, record = trained.pairs().to_pandas(), trained.per_query(), trained.record
    wrong = is_wrong(clean, pairs)
    sampled, estimate, guard = pairs.first_rank.notna().to_numpy(), record.false_pairs, record.guard
    listed = (pairs.probability_false > 0.5).to_numpy()
    return {
        "truth": wrong.mean(),
        "visited": sampled.mean(),
        **{name: getattr(estimate, name, None) for name in ("share", "low", "high")},
        "auc": auc(pairs.first_rank.to_numpy()[sampled], wrong[sampled]) if wrong.any() else None,
        "listed": int(listed.sum()),
        "listed_false": int((listed & wrong).sum()),
        "share_fine_tuned": guard.share if guard is not None else None,
        **{f"{model} {m}": np.asarray(queries[f"{model} {m}"]) for m in MEASURES for model in ("fine_tuned", "after")},
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
    """Train what is missing, or fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, values in {"--sets": SETS, "--noises": NOISES, "--methods": METHODS, "--seeds": "012"}.items():
        parser.add_argument(option, type=words, default=list(values))
    parser.add_argument("--model", choices=MODELS, default="static")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.tables:
        static, minilm = (Runs(Results(RESULTS[model], RUN)) for model in MODELS)
        tables = {"found": _found_table(static), "quality": _quality_table(static), "back": _back_table(static)}
        fill(PAGE, tables | {"minilm": _quality_table(minilm), "found minilm": _found_table(minilm)})
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

    def mean(self, name: str, noise: str, method: str, column: str) -> float | None:
        """The mean over queries and seeds, in points."""
        rows = self.rows.get((name, noise, method))
        return float(np.mean([row[column] for row in rows])) * 100 if rows else None

    def gains(self, name: str, noise: str, method: str, column: str) -> np.ndarray | None:
        """What each test query gains over ft: the mean over the seeds that both have, in points."""
        rows, base = ({row["seed"]: row for row in self.rows.get((name, noise, m), [])} for m in (method, "ft"))
        differences = [np.subtract(rows[seed][column], base[seed][column]) for seed in rows.keys() & base.keys()]
        return np.mean(differences, axis=0) * 100 if differences else None


def _found_table(runs: Runs) -> str:
    lines = []
    for name, noise in itertools.product(SETS, NOISES):
        found = [row for row in runs.rows.get((name, noise, "denoise"), []) if row["share"] is not None]
        if found:
            mean = {key: np.mean([row[key] or 0 for row in found]) for key in ("share", "low", "high", "truth", "auc")}
            listed, false = (np.mean([row[key] for row in found]) for key in ("listed", "listed_false"))
            precise = f"{listed:,.0f}, {false / max(listed, 1):.0%} false"
            lines.append((
                name, noise, f"{mean['truth']:.2f}", f"{mean['share']:.2f} ({mean['low']:.2f} to {mean['high']:.2f})",
                "" if noise == "clean" else f"{mean['auc']:.2f}", precise,
            ))  # fmt: skip
    heads = ("data", "noise", "truly false", "estimated (mean 95% interval)", "AUC", "listed pairs")
    return table_lines(heads, lines)


def _quality_table(runs: Runs) -> str:
    """What ft reaches and what the others gain over it, nDCG@10 / R@20; an empty column is left out."""
    methods = [m for m in METHODS[1:] if any(method == m for _, _, method in runs.rows)]
    lines = []
    for name, noise in itertools.product(SETS, NOISES):
        if (name, noise, "ft") in runs.rows:
            parts = [_quality(runs, name, noise, f"after {m}", methods) for m in MEASURES]
            lines.append((name, noise, *(" / ".join(cell).strip(" /") for cell in zip(*parts, strict=True))))
    return table_lines(("data", "noise", "ft", *methods), lines)


def _quality(runs: Runs, name: str, noise: str, column: str, methods: list[str]) -> list[str]:
    gains = {method: runs.gains(name, noise, method, column) for method in methods}
    found = {method: values for method, values in gains.items() if values is not None}
    p = holm([ttest_1samp(values, 0).pvalue for values in found.values()])
    row = [f"{runs.mean(name, noise, 'ft', column):.1f}", *[""] * len(methods)]
    for (method, values), corrected in zip(found.items(), p, strict=True):
        gain = f"{values.mean():+.1f}".replace("-", "−")
        row[methods.index(method) + 1] = f"**{gain}**" if corrected < 0.05 else gain
    return row


def _back_table(runs: Runs) -> str:
    """Points lost by ft to each noise, and the share of them that each method brings back, over the data sets."""
    lines = []
    for noise in NOISES[1:]:
        row = [noise]
        lost = {
            name: clean - ft
            for name in SETS
            if (clean := runs.mean(name, "clean", "ft", "after nDCG@10")) is not None
            and (ft := runs.mean(name, noise, "ft", "after nDCG@10")) is not None
        }
        row.append(f"{np.mean(list(lost.values())):.1f}" if lost else "")
        for method in METHODS[1:]:
            gains = {
                name: values.mean()
                for name in lost
                if (values := runs.gains(name, noise, method, "after nDCG@10")) is not None
            }
            if not gains:
                row.append("")
                continue
            total, loss = sum(gains.values()), sum(lost[name] for name in gains)
            p = f", p = {ttest_1samp(list(gains.values()), 0).pvalue:.2g}" if len(gains) > 1 else ""
            text = f"{total / len(gains):+.1f} ({total / loss:.0%} back{p}; {len(gains)} sets)"
            row.append(text.replace("-", "−"))
        lines.append(row)
    return table_lines(("noise", "ft loses", *METHODS[1:]), lines)


if __name__ == "__main__":
    main()
