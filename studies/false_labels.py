"""What do false labels cost, how well are they found, and what does ``denoise`` bring back?

    OMP_NUM_THREADS=1 .venv/bin/python studies/false_labels.py             # trains what is missing; hours
    OMP_NUM_THREADS=1 .venv/bin/python studies/false_labels.py --model minilm --noises clean,random:0.3 \
        --sets entailmentbank,scifact                                      # all-MiniLM-L6-v2: 10 minutes a cell
    OMP_NUM_THREADS=1 .venv/bin/python studies/false_labels.py --tables    # fills docs/false-labels.md, README.md

False pairs are added to train and to dev, as ``opera-paper noise`` does, until they are the share of all that
``--noises`` says. ``neighbour`` is for EntailmentBank alone, whose corpus is in the order of its explanations.
Every training has all defaults, the guard among them; MiniLM 120 steps and 64 tokens. sp and sp+dp are told the share
of true pairs. Reads ``../shared``, and stops with a message if it is absent. Finished trainings are kept in
studies/results, so the study can be stopped at any time.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import rankdata, ttest_1samp

import opera
from opera.core.files import write_parquet
from opera.data import Qrels, RetrievalData
from opera.experiments.analysis.significance import holm
from opera_paper.noise import NEEDS, add_wrong_pairs
from page import ROOT, fill, need, table_lines

UNTRAINED = "../shared/models/potion-base-4m"
MODELS: dict[str, tuple[str | Path, dict[str, Any]]] = {
    "static": (ROOT / UNTRAINED, {"precision": "fp32"}),
    "minilm": ("minilm", {"max_steps": 120, "max_passage_length": 64, "max_query_length": 64}),
}
DATA = "../shared/data"
SETS = ("scifact", "entailmentbank", "toollens", "nfcorpus")
NOISES = ("clean", "random:0.1", "random:0.3", "random:0.5", "hard:0.3", "clicks:0.3", "neighbour:0.3")
METHODS = ("ft", "denoise", "sp", "sp+dp", "dp", "infobatch")
SEEDS = (0, 1, 2)
RESULTS = {
    model: ROOT / "studies" / "results" / name
    for model, name in {"static": "false_labels.parquet", "minilm": "false_labels_minilm.parquet"}.items()
}
PAGE = ROOT / "docs" / "false-labels.md"
CELL = ("set", "noise", "method", "seed")
MEASURES = ("nDCG@10", "R@20")

Row = dict[str, Any]


def noisy(name: str, noise: str, seed: int) -> RetrievalData:
    """A data set with wrong pairs in train and dev; ``noise`` is ``clean``, or a kind and a share: ``random:0.3``."""
    data = opera.load_data(ROOT / DATA / name)
    if noise == "clean":
        return data
    kind, share = noise.split(":")
    model = ROOT / UNTRAINED if "model" in NEEDS[kind] else None
    return add_wrong_pairs(data, kind, float(share), seed, model=model)[0]


def _rows(split: Qrels) -> list[tuple[int, int]]:
    relevant = split.relevant()
    return list(zip(relevant.query_rows[relevant.query_index].tolist(), relevant.doc_rows.tolist(), strict=True))


def train(model: str, name: str, noise: str, method: str, seed: int) -> Row:
    """Train one cell, and compare what the run says of its labels with the truth."""
    data, clean = noisy(name, noise, seed), opera.load_data(ROOT / DATA / name)
    source, settings = MODELS[model]
    if method in ("sp", "sp+dp"):
        settings = {"k": 1 - float(noise.split(":")[1]), **settings}
    with TemporaryDirectory() as folder:
        run = opera.adapt(data, model=source, out=Path(folder) / "run", method=method, seed=seed, **settings)
        pairs, tested, record = run.pairs().to_pandas(), run.per_query(), run.record
    false = is_false(clean, pairs)
    seen, found, guard = pairs.first_rank.notna().to_numpy(), record.false_pairs, record.guard
    listed = (pairs.probability_false > 0.5).to_numpy()
    return {
        **dict(zip(CELL, (name, noise, method, seed), strict=True)),
        "truth": false.mean(),
        "visited": seen.mean(),
        **{part: getattr(found, part, None) for part in ("share", "low", "high")},
        "auc": auc(pairs.first_rank.to_numpy()[seen], false[seen]) if false.any() else None,
        "listed": int(listed.sum()),
        "listed_false": int((listed & false).sum()),
        "share_fine_tuned": guard.share if guard is not None else None,
        **{f"{when} {m}": np.asarray(tested[f"{when} {m}"]) for m in MEASURES for when in ("fine_tuned", "after")},
    }


def is_false(clean: RetrievalData, pairs: Any) -> np.ndarray:
    """Mark the pairs of a data frame that the clean data set does not have: bool ``[N]``."""
    ids = [clean.queries.ids(), clean.corpus.ids()]
    known = {(ids[0][q], ids[1][d]) for split in clean.splits.values() for q, d in _rows(split)}
    return np.array([pair not in known for pair in zip(pairs.query_id, pairs.doc_id, strict=True)])


def auc(p: np.ndarray, false: np.ndarray) -> float:
    """The probability that a false pair has a higher p than a true one."""
    ranks, count = rankdata(p)[false].sum(), int(false.sum())
    return float((ranks - count * (count + 1) / 2) / (count * (len(p) - count)))


def main() -> None:
    """Train the cells that are missing, or fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option, values in {"--sets": SETS, "--noises": NOISES, "--methods": METHODS}.items():
        parser.add_argument(option, type=lambda text: text.split(","), default=values)
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=SEEDS)
    parser.add_argument("--model", choices=MODELS, default="static")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.tables:
        minilm = Cells(results("minilm"))
        own = {"minilm": _quality_table(minilm), "found minilm": _found_table(minilm)}
        fill(PAGE, tables(results("static")) | own)
        fill(ROOT / "README.md", {"readme": _readme_table(Cells(results("static")))})
        return
    rows = results(options.model)
    need(UNTRAINED, *(f"{DATA}/{name}" for name in SETS))
    for seed, method, noise, name in itertools.product(options.seeds, options.methods, options.noises, options.sets):
        done = {tuple(row[part] for part in CELL) for row in rows}
        told = method in ("sp", "sp+dp")
        ordered = name == "entailmentbank" or not noise.startswith("neighbour")
        if (name, noise, method, seed) in done or (told and noise == "clean") or not ordered:
            continue
        row = train(options.model, name, noise, method, seed)
        rows.append(row)
        print({key: value for key, value in row.items() if not isinstance(value, np.ndarray)}, flush=True)
        print({key: round(float(value.mean()) * 100, 2) for key, value in row.items() if isinstance(value, np.ndarray)})
        write_parquet(
            RESULTS[options.model], pa.Table.from_pylist([{k: _plain(v) for k, v in row.items()} for row in rows])
        )


def results(model: str) -> list[Row]:
    """The finished trainings of a model."""
    return pq.read_table(RESULTS[model]).to_pylist() if RESULTS[model].is_file() else []


def _plain(value: Any) -> Any:
    return np.round(value, 4).tolist() if isinstance(value, np.ndarray) else value


class Cells:
    """Finished trainings by cell."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row["seed"]):
            self.rows[row["set"], row["noise"], row["method"]].append(row)

    def values(self, name: str, noise: str, method: str, column: str) -> np.ndarray | None:
        """Each test query's value, the mean over the seeds, in points."""
        found = self.rows.get((name, noise, method))
        return np.mean([row[column] for row in found], axis=0) * 100 if found else None

    def gains(self, name: str, noise: str, method: str, column: str) -> np.ndarray | None:
        """What each test query gains over ft, the mean over the seeds that both have, in points."""
        own, base = ({row["seed"]: row for row in self.rows.get((name, noise, m), [])} for m in (method, "ft"))
        differences = [np.subtract(own[seed][column], base[seed][column]) for seed in own.keys() & base.keys()]
        return np.mean(differences, axis=0) * 100 if differences else None

    def mean(self, name: str, noise: str, method: str, column: str) -> float | None:
        """The mean over queries and seeds."""
        values = self.values(name, noise, method, column)
        return None if values is None else float(values.mean())


def tables(rows: list[Row]) -> dict[str, str]:
    """All tables of the page."""
    cells = Cells(rows)
    return {
        "found": _found_table(cells),
        "quality": _quality_table(cells),
        "back": _back_table(cells),
    }


def _readme_table(cells: Cells) -> str:
    """What false labels cost, what comes back, and how many are found."""
    lines = []
    for name, noise in itertools.product(SETS, NOISES[2:4]):
        column = "after nDCG@10"
        means = [cells.mean(name, noise, method, column) for method in ("ft", "denoise")]
        clean = cells.mean(name, "clean", "ft", column)
        if clean is None or None in means:
            continue
        found = np.mean([row["share"] for row in cells.rows[name, noise, "denoise"]])
        share = f"{float(noise.split(':')[1]):.0%}"
        lines.append((name, share, *(f"{value:.1f}" for value in (clean, *means)), f"{found:.0%}"))
    heads = ("data", "false at random", "without them", "`ft` with them", "`denoise` with them", "estimated share")
    return table_lines(heads, lines)


def _found_table(cells: Cells) -> str:
    lines = []
    for name, noise in itertools.product(SETS, NOISES):
        found = [row for row in cells.rows.get((name, noise, "denoise"), []) if row["share"] is not None]
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


def _quality_table(cells: Cells) -> str:
    """What ft reaches and what the others gain over it, nDCG@10 / R@20; an empty column is left out."""
    methods = [m for m in METHODS[1:] if any(method == m for _, _, method in cells.rows)]
    lines = []
    for name, noise in itertools.product(SETS, NOISES):
        if (name, noise, "ft") in cells.rows:
            parts = [_quality(cells, name, noise, f"after {m}", methods) for m in MEASURES]
            lines.append((name, noise, *(" / ".join(cell).strip(" /") for cell in zip(*parts, strict=True))))
    return table_lines(("data", "noise", "ft", *methods), lines)


def _quality(cells: Cells, name: str, noise: str, column: str, methods: list[str]) -> list[str]:
    gains = {method: cells.gains(name, noise, method, column) for method in methods}
    found = {method: values for method, values in gains.items() if values is not None}
    p = holm([ttest_1samp(values, 0).pvalue for values in found.values()])
    row = [f"{cells.mean(name, noise, 'ft', column):.1f}", *[""] * len(methods)]
    for (method, values), corrected in zip(found.items(), p, strict=True):
        gain = f"{values.mean():+.1f}".replace("-", "−")
        row[methods.index(method) + 1] = f"**{gain}**" if corrected < 0.05 else gain
    return row


def _back_table(cells: Cells) -> str:
    """Points lost by ft to each noise, and the share of them that each method brings back, over the data sets."""
    lines = []
    for noise in NOISES[1:]:
        row = [noise]
        lost = {
            name: clean - ft
            for name in SETS
            if (clean := cells.mean(name, "clean", "ft", "after nDCG@10")) is not None
            and (ft := cells.mean(name, noise, "ft", "after nDCG@10")) is not None
        }
        row.append(f"{np.mean(list(lost.values())):.1f}" if lost else "")
        for method in METHODS[1:]:
            gains = {
                name: values.mean()
                for name in lost
                if (values := cells.gains(name, noise, method, "after nDCG@10")) is not None
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
