"""Which settings suit the adapter? Trains on each data set with each setting and measures dev, never test.

    python studies/adapter.py --stage rate --out rate.jsonl ../shared/data/scifact=../shared/models/potion-base-4m ...

Every line written holds the settings, and dev nDCG@10 and R@20 of W, of shares of W, and of the model without it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from opera.adapter.model import FrozenVectors, adapter_model, encode_all, set_vectors
from opera.config.recipe import make_recipe
from opera.data import load_data
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.runs.folder import RunWriter
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import Prepared, load_and_check

MEASURES = ["nDCG@10", "R@20"]
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
START: dict[str, Any] = {
    "method": "ft",
    "max_steps": 300,
    "per_device_train_batch_size": 256,
    "learning_rate": 1e-3,
    "temperature": 0.05,
    "warmup_ratio": 0.0,
    "adapter": "query",
    "save_steps": 10_000,
}
STAGES: dict[str, dict[str, list[Any]]] = {
    "rate": {"learning_rate": [3e-4, 1e-3, 3e-3], "adapter": ["query", "both", "shared"]},
    "batch": {"temperature": [0.02, 0.05, 0.1], "per_device_train_batch_size": [64, 256, 1024]},
    "temperature": {"temperature": [0.02, 0.05, 0.1]},
    "sides": {"adapter": ["query", "both"]},
    "steps": {"max_steps": [30, 100, 300, 1000]},
}


def variants(stage: str, fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings of a stage: all combinations of what it varies."""
    axes = STAGES[stage]
    for values in product(*axes.values()):
        yield {**START, **fixed, **dict(zip(axes, values, strict=True))}


def load(source: str, model: str, future: str | None) -> tuple[Prepared, FrozenVectors]:
    """Load data with a dev split, and the vectors of a model."""
    recipe = make_recipe({**START, "adapter": None, "future": future})
    prepared = load_and_check(load_data(source), model, recipe)
    return prepared, encode_all(prepared.model.encoder, prepared.data.drawn, "title_text")


def measure(prepared: Prepared, vectors: FrozenVectors, values: dict[str, Any]) -> dict[str, Any]:
    """Train once; return the means on dev by share of W, and the seconds of training."""
    shared = values["adapter"] == "shared"
    recipe = make_recipe({**values, "adapter": "both"} if shared else values)
    model = adapter_model(prepared.model.encoder.dimension, recipe.train.adapter_kind or "query", "cpu")
    set_vectors(model, vectors)
    if shared:
        model[1].sub_modules["document"] = model[1].sub_modules["query"]
    run = replace(prepared, recipe=recipe, model=model)
    training_set = build_training_set(run)
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        method = recipe.make_method(training_set.pairs, training_set.scores, 1)
        train(model, training_set, method, recipe.train, RunWriter(Path(folder)))
        seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 2), "dev": by_share(model, prepared)}


def by_share(model: SentenceTransformer, prepared: Prepared) -> dict[str, list[float]]:
    """Measure dev for shares of W; a Dense holds I + W."""
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    found = {}
    for share in SHARES:
        scaled = {name: torch.lerp(torch.eye(len(value)), value, share) for name, value in whole.items()}
        model.load_state_dict(scaled)
        means = evaluate_encoder(Encoder(model, use_cache=False), prepared.data.drawn, "dev", MEASURES).measures
        found[str(share)] = [round(means[name], 5) for name in MEASURES]
    return found


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="+", metavar="DATA=MODEL")
    parser.add_argument("--stage", choices=STAGES, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting of all trainings")
    parser.add_argument("--future", help="as for opera train")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    fixed = {name: json.loads(value) for name, value in (item.split("=", 1) for item in arguments.set)}
    for pair in arguments.pairs:
        source, _, model = pair.partition("=")
        prepared, vectors = load(source, model, arguments.future)
        for values, seed in product(variants(arguments.stage, fixed), range(arguments.seeds)):
            row = {"data": Path(source).name, "model": Path(model).name, **values, "seed": seed}
            row |= {"future": arguments.future} | measure(prepared, vectors, {**values, "seed": seed})
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
