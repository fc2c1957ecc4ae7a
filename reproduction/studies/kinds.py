"""Do the methods help sparse and multi-vector models as they help dense ones?

    OMP_NUM_THREADS=1 python reproduction/studies/kinds.py            # trains what is missing; hours
    OMP_NUM_THREADS=1 python reproduction/studies/kinds.py --costs    # measures what an index costs; minutes
    python reproduction/studies/kinds.py --tables                     # fills docs/kinds.md

``splade`` is splade-tiny, 4.4 million parameters. ``tokens`` is its body with a new projection to 128 dimensions, as a
multi-vector model. ``reranker`` is its body with a new head, which sorts the 30 best documents of BM25. MiniLM gets the
same two heads, and fewer trainings. All train 100 steps of 32 queries. New heads read 128 tokens of a document,
splade-tiny 512. With ``random:0.3``, 30% of the pairs in train and dev are wrong, at random. The guard is on for
splade-tiny on new documents; a new head has none, and dp cannot begin with its scores. Reads ``../shared``. Finished
trainings are stored, so the study can be stopped at any time.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import opera
from false_labels import auc, is_wrong
from opera.data import RetrievalData
from opera.deployment.onnx import instruction_set
from opera.retrieval.encoder import Encoder
from opera.retrieval.kinds import KindName
from opera.retrieval.kinds.dense import is_static
from opera.retrieval.models import load_model
from opera.run_folder.summary import Change
from opera.training import reranker
from opera_paper.noise import add_wrong_pairs
from study import (
    DATA,
    ROOT,
    STATIC_MODEL,
    STORED,
    Results,
    Row,
    fill,
    load_setting,
    need,
    table_lines,
    words,
)

SPLADE = ROOT / "../shared/models/splade-tiny"
STEPS = {"max_steps": 100, "per_device_train_batch_size": 32}
LENGTHS = {"max_passage_length": 128, "max_query_length": 64, "refit": False}
NEW_HEAD = {"learning_rate": 5e-4}
"""On another test split, entailmentbank+new1, ft of ``tokens`` with rates 1e-4, 3e-4, 1e-3 and 3e-3 gave 39.4, 42.8,
43.6 and 37.9."""
TOKENS = {"kind": "multi-vector", **NEW_HEAD, **STEPS, **LENGTHS}
RERANKER = {"kind": "reranker", "max_length": 128, "depth": 30, **NEW_HEAD, **STEPS}
MODELS: dict[str, dict[str, Any]] = {
    "splade": {"model": SPLADE, "kind": "sparse", "refit": False, **STEPS},
    "tokens": {"model": SPLADE, **TOKENS},
    "reranker": {"model": SPLADE, **RERANKER},
    "minilm-tokens": {"model": "minilm", **TOKENS},
    "minilm-reranker": {"model": "minilm", **RERANKER},
}
NEW_HEADS = ("tokens", "reranker", "minilm-tokens", "minilm-reranker")
NO_GUARD: dict[tuple[str, str], dict[str, Any]] = {
    ("splade", name): {"guard": False} for name in ("nfcorpus", "scifact")
}
"""Without a guard, a training encodes the documents once instead of six times."""
TITLES = {
    "splade": "splade-tiny (sparse)",
    "tokens": "its body, multi-vector",
    "reranker": "its body, sorting BM25's best 30",
    "minilm-tokens": "all-MiniLM-L6-v2, multi-vector",
    "minilm-reranker": "all-MiniLM-L6-v2, sorting BM25's best 30",
}
SETS, NOISES = ("toollens+new", "entailmentbank+new", "nfcorpus", "scifact"), ("random:0.3", "clean")
METHODS = ("ft", "denoise", "dp", "infobatch", "ft+16")
EQUAL_COST = "ft+16"
"""For a reranker: ft with the documents of denoise, a mined negative and 16 documents of other questions."""
FEW: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "minilm-tokens": (("toollens+new", "entailmentbank+new"), ("ft", "denoise")),
    "minilm-reranker": (("nfcorpus",), ("ft", "denoise")),
}
"""Sets and methods of the models with fewer trainings, one seed each."""
KEY = ("model", "set", "noise", "method", "seed")
MEASURED = ("base", "fine_tuned", "final", "bm25", "hybrid", "first_stage")
COSTS: dict[str, tuple[Any, KindName | None]] = {
    "potion-base-4m (static)": (STATIC_MODEL, None),
    "splade-tiny (sparse)": (SPLADE, "sparse"),
    "its body, multi-vector": (SPLADE, "multi-vector"),
    "all-MiniLM-L6-v2 (dense)": ("minilm", None),
    "all-MiniLM-L6-v2, multi-vector": ("minilm", "multi-vector"),
}
SAMPLE, LENGTH = 256, 256
"""Documents whose encoding is timed, and the most tokens of each."""
PAGE = ROOT / "docs" / "kinds.md"
MEASURE = "nDCG@10"
HYBRID = f"hybrid {MEASURE}"


def data_of(name: str, noise: str, seed: int) -> RetrievalData:
    """A setting, with wrong pairs in train if ``noise`` is ``random:0.3``."""
    data = load_setting(name)
    if noise == "clean":
        return data
    kind, fraction = noise.split(":")
    return add_wrong_pairs(data, kind, float(fraction), seed)[0]


def train(run: Row) -> Row:
    """Train once; return the measures of each query, and what the run says about its labels."""
    settings: dict[str, Any] = {"method": run["method"], **MODELS[run["model"]]}
    settings |= NO_GUARD.get((run["model"], run["set"]), {})
    in_batch = reranker.IN_BATCH
    if run["method"] == EQUAL_COST:
        settings, in_batch = {**settings, "method": "ft", "train_group_size": 2}, 16
    with tempfile.TemporaryDirectory() as folder, patch.object(reranker, "IN_BATCH", in_batch):
        trained = opera.adapt(
            data_of(run["set"], run["noise"], run["seed"]),
            out=Path(folder, "run"),
            seed=run["seed"],
            **settings,
        )
        pairs, queries, record = trained.pairs().to_pandas(), trained.per_query(), trained.record
    wrong = is_wrong(load_setting(run["set"]), pairs)
    sampled, estimate = pairs.first_rank.notna().to_numpy(), record.noisy_labels
    guard = getattr(record, "guard", None)  # the record of a reranker has neither guard nor index
    facts: Row = {
        "seconds": sum(record.seconds.values()),
        "truth": wrong.mean(),
        **{name: getattr(estimate, name, None) for name in ("noise_rate", "low", "high")},
        "auc": auc(pairs.first_rank.to_numpy()[sampled], wrong[sampled]) if wrong.any() and sampled.any() else None,
        "mixing_weight": None if guard is None else guard.mixing_weight,
        "curve": None if guard is None else " ".join(f"{p.mixing_weight:g}:{100 * p.mean:.1f}" for p in guard.curve),
    }
    for model, index in (getattr(record, "index", None) or {}).items():
        facts |= {f"{model} {name}": value for name, value in index.items()}
    columns = {model: f"{model} {MEASURE}" for model in MEASURED if f"{model} {MEASURE}" in queries.column_names}
    return facts | {column: np.asarray(queries[column]) for column in columns.values()}


def cost(model: str) -> Row:
    """Measure what an index of SciFact costs, from a sample; the seconds are those of the processor."""
    source, kind = COSTS[model]
    loaded = load_model(source, "cpu", kind)
    if not is_static(loaded):
        loaded.max_seq_length = LENGTH
    encoder = Encoder(loaded)
    corpus = opera.load_data(DATA / "scifact").corpus
    texts = corpus.texts(np.linspace(0, len(corpus) - 1, SAMPLE).astype(np.int64))
    encoder.encode(texts[:8], "document")
    started = time.process_time()
    rows = encoder.encode(texts, "document")
    seconds = (time.process_time() - started) * 10_000 / SAMPLE
    counts = encoder.kind.counts(rows)
    size = encoder.kind.facts(counts, counts).get("bytes per document", 4.0 * encoder.dimension)
    return {"seconds": seconds, "bytes": size, "processor": instruction_set()}


def costs_table(results: Results) -> str:
    """A row per model."""
    rows = [[model, f"{row['seconds']:,.0f}", f"{row['bytes']:,.0f}"] for (model,), row in results.rows.items()]
    return table_lines(["model", "seconds for 10,000 documents", "bytes per document"], rows)


def trained_table(results: Results) -> str:
    """A row per model, a column per setting: the measure before and after plain training on clean labels, seed 0.

    The dense models are those of the study of keyword search, which trains with dp, on as many queries.
    """
    dense = Results(STORED / "hybrid.csv", ("model", "setting", "method", "seed"))
    rows = [["BM25"]]
    for name in SETS:
        keywords = dense.of({"model": "static", "setting": name, "method": "dp", "seed": 0})["bm25"]
        rows[0].append(f"{keywords:.1f}")
    for model, title in {"static": "potion-base-4m (static)", "minilm": "all-MiniLM-L6-v2 (dense)"}.items():
        cells = []
        for name in SETS:
            row = dense.of({"model": model, "setting": name, "method": "dp", "seed": 0})
            cells.append(f"{row['base']:.1f} → {row['final']:.1f} ({row['hybrid']:.1f})")
        rows.append([title, *cells])
    for model, title in TITLES.items():
        cells = []
        for name in SETS:
            run = {"model": model, "set": name, "noise": "clean", "method": "ft", "seed": 0}
            cells.append(_before_and_after(results.of(run)) if results.has(run) else "")
        if any(cells):
            rows.append([title, *cells])
    return table_lines(["model", *SETS], rows)


def _means(row: Row) -> tuple[float, float]:
    """The measure before and after training; before a reranker, that of its first stage."""
    first = "base" if f"base {MEASURE}" in row else "first_stage"
    return float(row[f"{first} {MEASURE}"].mean()), float(row[f"final {MEASURE}"].mean())


def _before_and_after(row: Row) -> str:
    """The measure before and after training, and with keyword search."""
    before, after = (f"{100 * mean:.1f}" for mean in _means(row))
    together = f" ({100 * row[HYBRID].mean():.1f})" if HYBRID in row else ""
    return f"{before} → {after}{together}"


def main() -> None:
    """Train what is missing, or fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    lists = {"models": MODELS, "sets": SETS, "noises": NOISES, "methods": METHODS, "seeds": "0"}
    for name, values in lists.items():
        parser.add_argument(f"--{name}", type=words, default=list(values))
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--costs", action="store_true")
    options, results = parser.parse_args(), Results(STORED / "kinds.csv", KEY)
    costs = Results(STORED / "kind_costs.csv", ("model",))
    if options.tables:
        tables = {"costs": costs_table(costs), "trained": trained_table(results), "methods": methods_table(results)}
        fill(PAGE, tables)
        return
    need("../shared/data", "../shared/models")
    logging.disable(logging.INFO)
    if options.costs:
        for model in COSTS:
            if not costs.has({"model": model}):
                costs.add({"model": model}, **cost(model))
                print(costs.of({"model": model}), flush=True)
        return
    chosen = options.sets, options.noises, options.methods, options.models
    for seed, (name, noise, method, model) in itertools.product(options.seeds, itertools.product(*chosen)):
        run = dict(zip(KEY, (model, name, noise, method, int(seed)), strict=True))
        if not results.has(run) and is_wanted(run):
            results.add(run, **train(run))
            row = results.of(run)
            shown = {column: round(float(np.mean(row[column])), 4) for column in row if str(column).endswith(MEASURE)}
            print(*run.values(), f"{row['seconds']:.0f} s", shown, row["noise_rate"], row["auc"], flush=True)


def is_wanted(run: Row) -> bool:
    """Whether the study has a run: dp needs scores before training, and MiniLM trains little."""
    if run["model"] in NEW_HEADS and run["method"] == "dp":
        return False
    if run["method"] == EQUAL_COST:
        return run["model"] == "reranker" and run["noise"] != "clean"
    sets, methods = FEW.get(run["model"], (SETS, METHODS))
    return run["set"] in sets and run["method"] in methods and not (run["model"] in FEW and run["seed"])


def methods_table(results: Results) -> str:
    """A row per model, setting, noise and method: means over the seeds, and the paired gain over ft on test."""
    rows = []
    for model, name, noise, method in itertools.product(MODELS, SETS, NOISES, METHODS):
        runs = results.select(model=model, set=name, noise=noise, method=method)
        if not runs:
            continue
        before, after = (f"{100 * np.mean(values):.1f}" for values in zip(*map(_means, runs), strict=True))
        ft = {"model": model, "set": name, "noise": noise, "method": "ft"}
        pairs = [
            (run, results.of({**ft, "seed": run["seed"]})) for run in runs if results.has({**ft, "seed": run["seed"]})
        ]
        gain = ""
        if method != "ft" and pairs:
            column = f"final {MEASURE}"
            gain = Change.of(np.mean([run[column] - plain[column] for run, plain in pairs], axis=0)).in_points()
        rates = [100 * run["noise_rate"] for run in runs if run["noise_rate"] is not None]
        areas = [run["auc"] for run in runs if run["auc"] is not None]
        labels = "30% wrong" if noise != "clean" else "as they are"
        estimates = f"{np.mean(rates):.0f}%" if rates else "", f"{np.mean(areas):.2f}" if areas else ""
        rows.append([f"{model}, {name}", labels, method, str(len(runs)), before, after, gain, *estimates])
    heads = ["model and setting", "labels", "method", "seeds", "before", "after", "against ft", "estimated rate", "AUC"]
    return table_lines(heads, rows)


if __name__ == "__main__":
    main()
