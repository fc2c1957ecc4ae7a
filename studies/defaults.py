"""Which automatic settings suit plain fine-tuning? One at a time is changed; dev decides, never test.

    OMP_NUM_THREADS=1 .venv/bin/python studies/defaults.py
    OMP_NUM_THREADS=1 .venv/bin/python studies/defaults.py --model minilm
    .venv/bin/python studies/defaults.py --tables

The first two train and add a line per run to ``runs/defaults.jsonl``; finished runs are not repeated, so they can be
stopped at any time. Tests are measured and recorded, but only dev decides. The last fills in docs/defaults.md. Reads
``../shared``, and stops with a message if it is absent.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from opera.config.recipe import make_recipe
from opera.core.rng import generator
from opera.data import RetrievalData, load_data
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.runs.folder import RunWriter
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import load_and_check
from page import ROOT, fill, need, table_lines

SHARED = ROOT.parent / "shared"
MODELS = {"static": str(SHARED / "models" / "potion-base-4m"), "minilm": "minilm"}
RUNS, PAGE = ROOT / "runs" / "defaults.jsonl", ROOT / "docs" / "defaults.md"
MEASURES = ["nDCG@10", "R@20"]
FEW = 64
"""Training queries of ``entailmentbank-64``, a small data set."""
DATA = {
    "static": ("entailmentbank", "entailmentbank-64", "scifact", "nfcorpus", "toollens"),
    "minilm": ("entailmentbank",),
}
MOST_STEPS = {"static": 400, "minilm": 30}
"""Limits of this study, not of training: they keep it short."""
CENTRE: dict[str, dict[str, Any]] = {
    "static": {"temperature": 0.05, "per_device_train_batch_size": 256, "learning_rate": 1e-2, "epochs": 20},
    "minilm": {"temperature": 0.05, "per_device_train_batch_size": 32, "learning_rate": 1e-4, "epochs": 1},
}
VARIED: dict[str, dict[str, list[Any]]] = {
    "static": {
        "epochs": [5, 40, 10, 80, 2],
        "temperature": [0.02, 0.1, 0.07],
        "per_device_train_batch_size": [64, 512, 1024],
        "learning_rate": [3e-3, 3e-2],
    },
    "minilm": {"temperature": [0.02], "learning_rate": [2e-4, 5e-5]},
}
CHOSEN: dict[str, dict[str, Any]] = {"static": {"temperature": 0.07, "per_device_train_batch_size": 512}}
"""What dev said, together; at the steps of the centre."""


def variants(model: str) -> Iterator[dict[str, Any]]:
    """Yield the settings at the centre, those with one of them changed, and the combination that was chosen."""
    yield CENTRE[model]
    for name, values in VARIED[model].items():
        for value in values:
            yield {**CENTRE[model], name: value}
    if model in CHOSEN:
        yield {**CENTRE[model], **CHOSEN[model]}


@cache
def load(name: str) -> RetrievalData:
    """Load a data set, or a random part of its training queries."""
    source, _, count = name.partition("-")
    data = load_data(SHARED / "data" / source)
    if not count:
        return data
    train_split = data.training_split()
    chosen = np.zeros(train_split.n_queries, dtype=bool)
    chosen[generator(0, "defaults.few").choice(train_split.n_queries, int(count), replace=False)] = True
    return replace(data, splits={**data.splits, "train": train_split.select_queries(chosen)})


def run_values(model: str, name: str, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The settings of one run, with the steps of its epochs at the centre's batch.

    So batches are compared at equal steps: a static model's step costs nearly the same at every batch.
    """
    queries = load(name).training_split().n_queries
    per_epoch = -(-queries // min(queries, CENTRE[model]["per_device_train_batch_size"]))
    steps = min(MOST_STEPS[model], max(10, round(values["epochs"] * per_epoch)))
    changed = {key: value for key, value in values.items() if key != "epochs"}
    batch = min(queries, changed["per_device_train_batch_size"])
    return {**changed, "per_device_train_batch_size": batch, "max_steps": steps, "method": "ft", "seed": seed}


def measure(model: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Train once, without a guard; return dev and test before and after, and the seconds of training."""
    recipe = make_recipe({**values, "save_steps": 10_000, "eval_steps": 10_000})
    prepared = load_and_check(load(name), MODELS[model], recipe)
    data = prepared.data.drawn
    before = _before(model, data)
    training_set = build_training_set(prepared)
    method = prepared.recipe.make_method(training_set.pairs, training_set.scores, 1)
    settings = prepared.settings.with_values({"eval_steps": None})  # dev is drawn, but no step measures it
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        train(prepared.model.trained, training_set, method, settings, RunWriter(Path(folder)))
        seconds = round(time.perf_counter() - start, 1)
    encoder = Encoder(prepared.model.trained, use_cache=False, show_progress=False)
    return {"before": before, "after": _measures(encoder, data), "seconds": seconds}


def _before(model: str, data: RetrievalData) -> dict[str, dict[str, float]]:
    """The pretrained model's measures, from the cache of embeddings."""
    return _measures(open_encoder(MODELS[model]), data)


def _measures(encoder: Encoder, data: RetrievalData) -> dict[str, dict[str, float]]:
    corpus = encoder.encode_corpus(data, "title_text")
    encoder.encode_corpus = lambda *_: corpus  # type: ignore[method-assign]  # once for both splits
    return {name: evaluate_encoder(encoder, data, name, MEASURES, "title_text").measures for name in ("dev", "test")}


def done() -> list[dict[str, Any]]:
    """Every run so far."""
    return [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.is_file() else []


def run_all(model: str, seeds: list[int], names: list[str]) -> None:
    """Train what is not there yet: seeds outermost, so that every setting and data set has its turn."""
    RUNS.parent.mkdir(exist_ok=True)
    seen = {json.dumps(run["key"]) for run in done()}
    for seed in seeds:
        for variant in variants(model):
            for name in names:
                values = run_values(model, name, variant, seed)
                key = [model, name, dict(sorted(values.items()))]
                if json.dumps(key) in seen:
                    continue
                seen.add(json.dumps(key))
                found = measure(model, name, values)
                with RUNS.open("a") as file:
                    file.write(json.dumps({"key": key, **found}) + "\n")
                print(name, values, found["after"], f"{found['seconds']} s", flush=True)


def table(model: str) -> str:
    """nDCG@10 on dev and on test with seed 0, in points, by setting and data set: other seeds draw another dev."""
    runs = {json.dumps(run["key"]): run for run in done()}
    rows = []
    for variant in variants(model):
        changed = [(name, value) for name, value in variant.items() if value != CENTRE[model].get(name)]
        label = ", ".join(f"{name}={value:g}" for name, value in changed) or "centre"
        rows.append([label, *(_cell(runs, model, name, variant) for name in DATA[model])])
    untrained = ["untrained", *(_cell(runs, model, name, CENTRE[model], "before") for name in DATA[model])]
    return table_lines(["nDCG@10, dev / test (steps)", *DATA[model]], [untrained, *rows])


def _cell(runs: Mapping[str, Any], model: str, name: str, variant: Mapping[str, Any], when: str = "after") -> str:
    values = run_values(model, name, variant, seed=0)
    run = runs.get(json.dumps([model, name, dict(sorted(values.items()))]))
    if run is None:
        return ""
    dev, test = (100 * run[when][split]["nDCG@10"] for split in ("dev", "test"))
    detail = "" if when == "before" else f" ({values['max_steps']})"
    return f"{dev:.1f} / {test:.1f}{detail}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="static")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--data", help="comma-separated; default all of the model")
    parser.add_argument("--tables", action="store_true", help="fill in docs/defaults.md and exit")
    given = parser.parse_args()
    if given.tables:
        fill(PAGE, {f"defaults-{model}": table(model) for model in MODELS})
        raise SystemExit
    need("../shared/data")
    names = given.data.split(",") if given.data else list(DATA[given.model])
    run_all(given.model, [int(seed) for seed in given.seeds.split(",")], names)
