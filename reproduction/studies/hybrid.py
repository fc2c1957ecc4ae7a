"""Does keyword search help the final model? Train with all defaults, and measure BM25, the model, and both together.

    OMP_NUM_THREADS=1 python reproduction/studies/hybrid.py             # trains what is missing, prints the tables
    OMP_NUM_THREADS=1 python reproduction/studies/hybrid.py --tables    # prints the tables of the stored results

The run chooses the weight of keyword search on dev. ``hindsight`` is the best weight on test, which shows what
choosing costs. rivals.py compares the same runs with other trainers. MiniLM trains 50 steps on 64 tokens, and is not
trained again with the dev queries, since that takes hours on a CPU.

Writes results/hybrid.csv and .parquet, and fills the tables of docs/keyword-search.md. Reads ``../shared``. Finished
runs are not repeated.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import opera
from opera.core.figures import DIFFERENCE, mean_interval, signed
from opera.data import RetrievalData
from opera.guard.rule import KEYWORD_WEIGHTS
from opera.retrieval.evaluation import Evaluation, evaluate_ranking, fusion_of
from opera.retrieval.measures import parse_measures
from study import (
    ROOT,
    SETS,
    STATIC_MODEL,
    STORED,
    OverSettings,
    Results,
    fill,
    load_setting,
    read_options,
    table_lines,
    train_missing,
)

KEY = ("model", "setting", "method", "seed")
METHOD = "dp"
TEST_SPLITS = {"toollens": ("", "1", "2")}
"""Test splits about new documents. Those of ToolLens have some 30 documents each, so tables have a mean of three."""
NEW = [f"{name}+new{split}" for name in SETS for split in TEST_SPLITS.get(name, ("",))]
SETTINGS = [*NEW, *SETS, *(f"{name}{change}" for change in ("+new+n200", "+n200") for name in SETS)]
TOKENS = {"static": None, "minilm": 64}
STEPS = {"minilm": 50}
"""Steps of a training, if not OPERA's automatic number."""
MODELS: dict[str, str | Path] = {"static": STATIC_MODEL, "minilm": "minilm"}
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "static": {},
    "minilm": {
        **{"max_steps": STEPS["minilm"], "refit": False},
        **{"max_query_length": TOKENS["minilm"], "max_passage_length": TOKENS["minilm"]},
    },
}
MEASURE = "nDCG@10"
PARTS = ("bm25", "base", "final", "hybrid")
GROUPS = {
    "mean, new documents": NEW,
    "mean, known documents": SETS,
    "mean, new documents, 200 queries": [f"{name}+new+n200" for name in SETS],
    "mean, known documents, 200 queries": [f"{name}+n200" for name in SETS],
}


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Train, and search the test queries with each weight of keyword search."""
    data, model = load_setting(run["setting"], run["seed"]), run["model"]
    with tempfile.TemporaryDirectory() as folder:
        out, started = Path(folder, "run"), time.monotonic()
        trained = opera.adapt(data, model=MODELS[model], out=out, seed=run["seed"], **MODEL_SETTINGS[model])
        seconds = time.monotonic() - started
        guard, keywords = trained.record.guard, trained.record.keywords
        assert guard is not None
        assert keywords is not None
        used, measures, per_query = trained.settings, trained.measures, trained.per_query()
        facts = {
            **{"lr": used["learning_rate"], "steps": used["max_steps"], "batch": used["per_device_train_batch_size"]},
            **{part: 100 * measures[part][MEASURE] for part in PARTS},
            "R@20": 100 * measures["final"]["R@20"],
            "w": keywords.weights[data.name],
            "lambda": guard.mixing_weight,
            "seconds": seconds,
            **{f"per query {part}": per_query[f"{part} {MEASURE}"].to_numpy() for part in PARTS},
        }
        tested = opera.evaluate(data, model=out, measures=MEASURE, hybrid=True)
    return {**facts, **in_hindsight(data, tested)}


def in_hindsight(data: RetrievalData, tested: Evaluation) -> dict[str, float]:
    """The best weight of keyword search on test, and its nDCG@10."""
    assert tested.bm25 is not None
    fusion, measures = fusion_of(data, tested, tested.bm25), parse_measures(MEASURE)
    points = {
        weight: 100 * evaluate_ranking(data, "test", fusion.ranking(weight), measures).measures[MEASURE]
        for weight in KEYWORD_WEIGHTS
    }
    best = max(points, key=lambda weight: points[weight])
    return {"hindsight w": best, "hindsight": points[best]}


def setting_table(results: Results, model: str) -> str:
    """A line per setting with means over the seeds, then the mean gain of each group of settings."""
    lines = []
    for setting in SETTINGS:
        if rows := results.select(model=model, setting=setting):
            cells = [f"{np.mean([row[part] for row in rows]):.1f}" for part in (*PARTS, "hindsight")]
            weights = " ".join(f"{row['w']:g}" for row in rows)
            lines.append([setting, *cells, weights, signed(gain(rows)), difference(rows)])
    for group, settings in GROUPS.items():
        gains = [gain(rows) for setting in settings if (rows := results.select(model=model, setting=setting))]
        if gains:
            test = OverSettings.of(gains)
            interval = f"{signed(test.low)} to {signed(test.high)}" if len(gains) > 1 else ""
            lines.append([group, *[""] * 6, signed(test.difference), interval])
    heads = ["data", "BM25", "base", "final", "final + BM25", "best w in hindsight", "w"]
    return table_lines([*heads, "above the better part", "above final, 95% interval"], lines)


def gain(rows: Iterable[Mapping[str, Any]]) -> float:
    """The mean over the seeds of hybrid search above its better part."""
    return float(np.mean([row["hybrid"] - max(row["bm25"], row["final"]) for row in rows]))


def difference(rows: Iterable[Mapping[str, Any]]) -> str:
    """The interval of hybrid search minus the final model over the test queries; a query counts as its mean."""
    values = np.mean([row["per query hybrid"] - row["per query final"] for row in rows], axis=0)
    low, high = mean_interval(values, bounds=DIFFERENCE)
    return f"{signed(100 * low)} to {signed(100 * high)}"


def main() -> None:
    """Train what is missing, then print the tables."""
    options = read_options(__doc__, MODELS, settings=SETTINGS, seeds="012")
    results = Results(STORED / "hybrid.csv", KEY)
    if not options.tables:
        train_missing(results, options, [METHOD], measure, lambda row: [row[part] for part in (*PARTS, "w")])
    fill(
        ROOT / "docs" / "keyword-search.md",
        {f"hybrid {model}": setting_table(results, model) for model in MODELS},
    )


if __name__ == "__main__":
    main()
