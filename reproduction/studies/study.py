"""What the studies share: settings with few queries or new documents, and stored results.

    python reproduction/studies/study.py toollens+new FOLDER    # writes a setting as a BEIR folder

A setting is named after a data set and what was done to it: ``toollens``, ``toollens+new`` (the test split is drawn
from train so that no training pair names its documents), ``toollens+new1`` (another such test split), ``scifact+n60``
(60 training queries).
"""

from __future__ import annotations

import argparse
import csv
import itertools
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from opera.core.rng import generator
from opera.data import RetrievalData, load_data
from opera.data.splits import hold_out

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from page import ROOT, fill, need, table_lines  # noqa: F401  for the studies

DATA, STATIC_MODEL = ROOT / "../shared/data", ROOT / "../shared/models/potion-base-4m"
STORED = Path(__file__).parent / "results"
NEW_TEST, MOST_NEW_TEST = 0.15, 1000
"""Fraction of the training queries that become the test split of a ``+new`` setting, and the most of them."""
SPLIT_SEED = 100
"""The test split of a setting is the same for every seed of training."""

SETS = ("toollens", "nfcorpus", "scifact", "entailmentbank")
"""The data sets of the studies of negatives and of keyword search, and of the comparison with other trainers."""

Row = dict[str, Any]


def load_setting(name: str, seed: int = 0) -> RetrievalData:
    """Load a setting without a dev split, since the guard draws one. ``seed`` draws the queries of ``+n60``."""
    base, *changes = name.split("+")
    data = load_data(DATA / base)
    data = replace(data, splits={split: qrels for split, qrels in data.splits.items() if split != "dev"})
    for change in changes:
        if change.startswith("new"):
            data = _with_new_documents(data, SPLIT_SEED + int(change[3:] or 0))
        else:
            data = _with_few_queries(data, int(change[1:]), seed)
    return data


def _with_new_documents(data: RetrievalData, seed: int) -> RetrievalData:
    alone = replace(data, splits={"train": data.split("train")})
    fraction = min(NEW_TEST, MOST_NEW_TEST / data.training_split().n_queries)
    return hold_out(alone, "test", fraction, seed, "new")


def _with_few_queries(data: RetrievalData, count: int, seed: int) -> RetrievalData:
    train = data.split("train")
    selected = np.zeros(train.n_queries, dtype=bool)
    selected[generator(seed, "world.queries").permutation(np.flatnonzero(train.has_relevant))[:count]] = True
    return replace(data, splits={**data.splits, "train": train.select_queries(selected)})


class Results:
    """Finished runs: a CSV file has a row for each, and a Parquet file next to it has the values of single queries.

    Attributes:
        rows: numbers, texts and None by column, and float32 ``[queries]`` by measure; by the values of ``key``.
    """

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self.path, self.key = path, tuple(key)
        self.rows: dict[tuple[Any, ...], Row] = {}
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                rows: list[Row] = [{name: parsed(text) for name, text in row.items()} for row in csv.DictReader(file)]
            self.rows = {self._key(row): row for row in rows}
        if self._queries.is_file():
            for row in pq.read_table(self._queries).to_pylist():
                values = {name: np.array(of, np.float32) for name, of in row.items() if of and name not in self.key}
                self.rows[tuple(parsed(str(row[name])) for name in self.key)] |= values

    @property
    def _queries(self) -> Path:
        return self.path.with_suffix(".parquet")

    def _key(self, run: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(parsed(str(run[name])) for name in self.key)

    def has(self, run: Mapping[str, Any]) -> bool:
        """Whether a run is finished."""
        return self._key(run) in self.rows

    def of(self, run: Mapping[str, Any]) -> Row:
        """The row of a finished run."""
        return self.rows[self._key(run)]

    def select(self, **fields: Any) -> list[Row]:
        """The rows with these values."""
        return [row for row in self.rows.values() if all(row[name] == value for name, value in fields.items())]

    def add(self, run: Mapping[str, Any], **facts: Any) -> None:
        """Keep what was measured, and write both files; arrays are the values of single queries."""
        rounded = {name: _rounded(fact) for name, fact in facts.items()}
        self.rows[self._key(run)] = {**dict(zip(self.key, self._key(run), strict=True)), **rounded}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = [{name: value for name, value in row.items() if _is_fact(value)} for row in self.rows.values()]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with (new := self.path.with_suffix(".new")).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        arrays = [
            {**{name: str(row[name]) for name in self.key}, **values}
            for row in self.rows.values()
            if (values := {name: value for name, value in row.items() if not _is_fact(value)})
        ]
        if arrays:
            names = dict.fromkeys(name for row in arrays for name in row)  # Arrow takes those of the first row
            pq.write_table(
                pa.Table.from_pylist([{name: row.get(name) for name in names} for row in arrays]), self._queries
            )
        new.replace(self.path)


def parsed(text: str) -> Any:
    """A whole number, a number or a text; None for an empty text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def _rounded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.round(value, 4).astype(np.float32)
    return float(f"{value:.5g}") if isinstance(value, float | np.floating) else value


def _is_fact(value: Any) -> bool:
    return not isinstance(value, np.ndarray)


@dataclass(frozen=True)
class OverSettings:
    """A difference in points with settings as the sample: mean, 95% interval and p of the t-test."""

    difference: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, differences: Sequence[float] | NDArray[Any]) -> OverSettings:
        """Test one difference per setting; the interval is NaN for fewer than two settings."""
        mean = float(np.mean(differences))
        if len(differences) < 2 or np.ptp(differences) < 1e-12:
            return cls(mean, np.nan, np.nan, np.nan)
        student = ttest_1samp(differences, 0)
        low, high = student.confidence_interval(0.95)
        return cls(mean, float(low), float(high), float(student.pvalue))


def read_options(description: str | None, models: Mapping[str, Any], **lists: Iterable[str]) -> argparse.Namespace:
    """Read a study's command line: ``--tables``, ``--model``, and an option per list; the default is all of it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="train nothing")
    parser.add_argument("--model", choices=list(models), default="static")
    for name, values in lists.items():
        parser.add_argument(f"--{name}", type=words, default=list(values))
    return parser.parse_args()


def train_missing(
    results: Results,
    options: argparse.Namespace,
    variants: Iterable[str],
    measure: Callable[[Row], Row],
    shown: Callable[[Row], Iterable[Any]],
) -> None:
    """Train each variant in each setting with each seed, unless it is done; print the run and what is ``shown`` of it.

    The key of the results is the model, the setting, the variant and the seed.
    """
    need("../shared/data", "../shared/models")
    logging.disable(logging.INFO)
    for seed, variant, setting in itertools.product(map(int, options.seeds), variants, options.settings):
        run = dict(zip(results.key, (options.model, setting, variant, seed), strict=True))
        if not results.has(run):
            results.add(run, **measure(run))
            print(*run.values(), *shown(results.of(run)), flush=True)


def words(text: str) -> list[str]:
    """The values of an option: ``ft,dp``."""
    return text.split(",")


if __name__ == "__main__":
    name, folder = sys.argv[1:]
    load_setting(name).write_beir(Path(folder))
