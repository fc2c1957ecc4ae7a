"""What would users run otherwise? The same model, data and number of queries in other trainers.

    OMP_NUM_THREADS=1 python reproduction/studies/rivals.py             # trains what is missing, prints the table
    OMP_NUM_THREADS=1 python reproduction/studies/rivals.py --tables    # prints the table of the stored results

- ``st`` is the recipe of an experienced user of sentence-transformers: ``MultipleNegativesRankingLoss``, batches
  without duplicates, warm-up, three learning rates, and the best checkpoint by nDCG@10 on dev, measured at every fifth
  of the training. ``st-mined`` adds a negative per pair by ``mine_hard_negatives`` with a relative margin of 0.05.
- ``flag`` is FlagEmbedding's training (transformers only) with its temperature, and negatives from ``opera mine``. It
  measures nothing during a training, so that dev chooses the rate only.

A rival gets the dev queries that OPERA draws, and trains on as many queries. As OPERA does, it then trains again with
the dev queries included, up to the best step. OPERA runs with all defaults. Writes results/rivals.csv and .parquet.
Reads ``../shared``. Finished runs are not repeated.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import mine_hard_negatives
from transformers import TrainerCallback

import opera
from negatives import MODEL_SETTINGS, MODELS, SETS, STATIC
from opera.config.automatic import DEFAULTS
from opera.core.intervals import DIFFERENCE, mean_interval, signed
from opera.core.rng import generator
from opera.data import Qrels, RetrievalData
from opera.data.splits import draw_missing_splits
from opera.retrieval.locate import locate_model
from study import ROOT, STORED, OverSettings, Results, load_setting, read_options, table_lines, train_missing

sys.path.insert(0, str(ROOT / "benchmarks" / "encoder"))
from environment import flagembedding

KEY = ("model", "setting", "rival", "seed")
TEST_SPLITS = {"toollens": ("", "1", "2")}
"""Test splits about new documents. Those of ToolLens have some 30 documents each, so the table has a mean of three."""
SETTINGS = [
    *(f"{name}+new{split}" for name in SETS for split in TEST_SPLITS.get(name, ("",))),
    *SETS,
]
OPERA = "opera"
RIVALS = (OPERA, "st", "st-mined", "flag")
RATES = {"static": (3e-3, 1e-2, 3e-2), "minilm": (2e-5, 1e-4, 3e-4)}
STEPS = {"minilm": 200}
"""Steps of a training, if not OPERA's automatic number."""
TOKENS = {"static": None, "minilm": 64}
CHECKS = 5
"""How often dev is measured in a training."""
SMALLEST_POOL = 4
"""The corpus has at least as many documents as a batch, times this; else the batch is halved."""


def pairs_of(data: RetrievalData, qrels: Qrels, seed: int) -> Dataset:
    """The relevant pairs of a split, shuffled."""
    relevant = qrels.relevant()
    order = generator(seed, "rivals.pairs").permutation(len(relevant.doc_rows))
    queries = data.queries.texts(relevant.query_rows[relevant.query_index][order], "text")
    documents = data.corpus.texts(relevant.doc_rows[order])
    return Dataset.from_dict({"anchor": list(queries), "positive": list(documents)})


def dev_evaluator(data: RetrievalData) -> InformationRetrievalEvaluator:
    """sentence-transformers' evaluator of the dev split."""
    qrels = data.judged_qrels("dev").relevant()
    queries, rows = data.queries.ids(qrels.query_rows), np.arange(len(data.corpus))
    relevant: dict[str, set[str]] = {query: set() for query in queries}
    for number, document in zip(qrels.query_index.tolist(), data.corpus.ids(qrels.doc_rows), strict=True):
        relevant[queries[number]].add(document)
    return InformationRetrievalEvaluator(
        dict(zip(queries, data.queries.texts(qrels.query_rows, "text"), strict=True)),
        dict(zip(data.corpus.ids(rows), data.corpus.texts(rows), strict=True)),
        relevant,
        name="dev",
        ndcg_at_k=[10],
        accuracy_at_k=[10],
        precision_recall_at_k=[10],
        map_at_k=[10],
        mrr_at_k=[10],
        batch_size=256,
    )


def load(run: dict[str, Any]) -> SentenceTransformer:
    """Load the base model as a user would."""
    model = SentenceTransformer(str(locate_model(MODELS[run["model"]])), device="cpu")
    if tokens := TOKENS[run["model"]]:
        model.max_seq_length = tokens
    return model


def train(
    run: dict[str, Any], pairs: Dataset, rate: float, steps: int, batch: int, stop: int, evaluator: Any = None
) -> tuple[SentenceTransformer, list[tuple[float, int]]]:
    """Train until step ``stop`` of a schedule of ``steps``; return the model, and nDCG@10 on dev with its step."""
    model, seen = load(run), []
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            learning_rate=rate,
            warmup_steps=0.1,
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            eval_strategy="no" if evaluator is None else "steps",
            eval_steps=max(1, steps // CHECKS),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
            use_cpu=True,
            seed=run["seed"],
        )
        trainer = SentenceTransformerTrainer(
            model, arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model), evaluator=evaluator
        )
        if stop < steps:
            trainer.add_callback(StopAt(stop))
        trainer.train()
        for entry in trainer.state.log_history:
            if "eval_dev_cosine_ndcg@10" in entry:
                seen.append((float(entry["eval_dev_cosine_ndcg@10"]), int(entry["step"])))
    return model, seen


@dataclass(frozen=True)
class Task:
    """The data of a run with and without dev in train, and the size of its training.

    Attributes:
        data: with the dev queries in train.
        split: with a dev split.
        steps: of a training.
        batch: queries per step.
    """

    data: RetrievalData
    split: RetrievalData
    steps: int
    batch: int

    @classmethod
    def of(cls, run: dict[str, Any]) -> Task:
        """Draw the dev queries that OPERA draws, and compute how many queries OPERA trains on."""
        data = load_setting(run["setting"], run["seed"])
        split = draw_missing_splits(data, seed=run["seed"], needs_dev=True)
        defaults = DEFAULTS["static" if run["model"] == "static" else "small"]
        queries = split.training_split().n_queries
        batch = min(defaults.queries_per_batch, queries)
        automatic = min(max(round(defaults.epochs * -(-queries // batch)), 50), defaults.most_steps["cpu"])
        budget = STEPS.get(run["model"], automatic) * batch
        while batch * SMALLEST_POOL > len(data.corpus):
            batch //= 2
        return cls(data, split, -(-budget // batch), batch)


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Choose rate and step on dev, train again with dev included, and measure on test."""
    if run["rival"] == OPERA:
        return measure_opera(run)
    started, task = time.monotonic(), Task.of(run)
    with tempfile.TemporaryDirectory() as folder:
        facts = {"flag": flagembedding_recipe}.get(run["rival"], library_recipe)(run, task, Path(folder))
        tokens = TOKENS[run["model"]]
        model = Path(folder, "model")
        test = opera.evaluate(task.data, model=model, max_query_length=tokens, max_passage_length=tokens)
    return {
        **facts,
        "steps": task.steps,
        "batch": task.batch,
        **{name: 100 * test.measures[name] for name in ("nDCG@10", "R@20")},
        "seconds": time.monotonic() - started,
        "final": test.per_query["nDCG@10"],
    }


def measure_opera(run: dict[str, Any]) -> dict[str, Any]:
    """Train with all defaults."""
    started, model = time.monotonic(), run["model"]
    data = load_setting(run["setting"], run["seed"])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        trained = opera.adapt(data, model=MODELS[model], out=out, seed=run["seed"], **MODEL_SETTINGS[model])
        measures, used = trained.measures, trained.settings
        return {
            "lr": used["learning_rate"],
            "steps": used["max_steps"],
            "batch": used["per_device_train_batch_size"],
            "base": 100 * measures["base"]["nDCG@10"],
            **{name: 100 * measures["final"][name] for name in ("nDCG@10", "R@20")},
            "seconds": time.monotonic() - started,
            "final": trained.per_query()["final nDCG@10"].to_numpy(),
        }


def library_recipe(run: dict[str, Any], task: Task, folder: Path) -> dict[str, Any]:
    """The recipe for sentence-transformers; saves the model."""
    first, whole = (pairs_of(of, of.split("train"), run["seed"]) for of in (task.split, task.data))
    if run["rival"] == "st-mined":
        first, whole = (with_negatives(run, of, task.data) for of in (first, whole))
    evaluator, tried = dev_evaluator(task.split), []
    for rate in RATES[run["model"]]:
        _, seen = train(run, first, rate, task.steps, task.batch, task.steps, evaluator)
        tried += [(score, rate, step) for score, step in seen]
    dev, rate, step = max(tried)
    model, _ = train(run, whole, rate, task.steps, task.batch, step)
    model.save(str(folder / "model"))
    return {"lr": rate, "best step": step, "rows": len(whole), "dev nDCG@10": 100 * dev}


def flagembedding_recipe(run: dict[str, Any], task: Task, folder: Path) -> dict[str, Any]:
    """The recipe for FlagEmbedding, with negatives from ``opera mine``; saves the model."""
    python, tried = flagembedding(ROOT / "runs" / "flagembedding"), []
    tokens = TOKENS[run["model"]]
    assert python is not None

    def mined(data: RetrievalData, name: str) -> Path:
        rows = folder / f"{name}.jsonl"
        opera.mine(data, model=MODELS[run["model"]], out=rows, seed=run["seed"], max_passage_length=tokens)
        return rows

    def trained(rows: Path, rate: float, name: str) -> Path:
        out = folder / name
        job = {"model": str(locate_model(MODELS[run["model"]])), "rows": str(rows), "folder": str(out)}
        numbers = {"steps": task.steps, "batch": task.batch, "lr": rate, "tokens": tokens, "seed": run["seed"]}
        path = folder / f"{name}.json"
        path.write_text(json.dumps(job | numbers), encoding="utf-8")
        script = Path(__file__).with_name("train_flagembedding.py")
        subprocess.run([python, script, path], check=True, capture_output=True)
        return out

    first = mined(task.split, "first")
    for rate in RATES[run["model"]]:
        model = trained(first, rate, f"lr{rate}")
        dev = opera.evaluate(task.split, split="dev", model=model, max_query_length=tokens, max_passage_length=tokens)
        tried.append((dev.measures["nDCG@10"], rate))
    score, rate = max(tried)
    trained(mined(task.data, "whole"), rate, "model")
    return {"lr": rate, "best step": task.steps, "dev nDCG@10": 100 * score}


class StopAt(TrainerCallback):  # type: ignore[misc]
    """Ends the training after a step, so that its schedule is that of the longer training."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop."""
        control.should_training_stop = state.global_step >= self.step


def with_negatives(run: dict[str, Any], pairs: Dataset, data: RetrievalData) -> Dataset:
    """Add a mined negative to each pair; pairs without one are dropped."""
    return mine_hard_negatives(
        pairs,
        load(run),
        corpus=list(dict.fromkeys(data.corpus.texts(np.arange(len(data.corpus))))),
        range_min=10,
        range_max=100,
        relative_margin=0.05,
        num_negatives=1,
        sampling_strategy="random",
        batch_size=256,
        verbose=False,
    )


def table(results: Results, model: str) -> str:
    """A line per setting: nDCG@10 and seconds of the base model and each trainer; then the mean gains of OPERA."""
    trainers = [rival for rival in RIVALS if results.select(model=model, rival=rival)]
    lines, gains = [], {rival: dict[str, float]() for rival in trainers[1:]}
    for setting in SETTINGS:
        runs = {rival: results.select(model=model, setting=setting, rival=rival, seed=0) for rival in trainers}
        if not runs[OPERA]:
            continue
        (ours,) = runs[OPERA]
        cells = [" ".join(f"{row['nDCG@10']:.1f} ({row['seconds']:.0f} s)" for row in rows) for rows in runs.values()]
        lines.append([setting, f"{ours['base']:.1f}", *cells])
        for rival, points in gains.items():
            if runs[rival]:
                points[setting] = ours["nDCG@10"] - runs[rival][0]["nDCG@10"]
    for name, matches in {"new documents": True, "known documents": False}.items():
        tests = [
            OverSettings.of([points for setting, points in of.items() if ("+new" in setting) == matches] or [np.nan])
            for of in gains.values()
        ]
        lines.append([f"OPERA's gain, {name}", "", "", *(signed(test.difference) for test in tests)])
    return table_lines(["setting", "base", *trainers], lines)


def by_data_set(results: Results) -> str:
    """A line per data set for known and new documents, with the interval of the difference over the test queries."""
    lines = []
    for name, documents in itertools.product(SETS, ("known", "new")):
        settings = [name] if documents == "known" else [f"{name}+new{split}" for split in TEST_SPLITS.get(name, ("",))]
        runs = [[results.rows.get(("static", setting, rival, 0)) for rival in (OPERA, "st")] for setting in settings]
        pairs = [(ours, theirs) for ours, theirs in runs if ours and theirs]
        if not pairs:
            continue
        low, high = mean_interval(
            np.concatenate([ours["final"] - theirs["final"] for ours, theirs in pairs]), bounds=DIFFERENCE
        )
        points = np.mean([[ours["base"], theirs["nDCG@10"], ours["nDCG@10"]] for ours, theirs in pairs], axis=0)
        gain = f"{signed(points[2] - points[1])} ({signed(100 * low)} to {signed(100 * high)})"
        lines.append([name, documents, *(f"{value:.1f}" for value in points), gain])
    return table_lines(["data", "documents", "base", "sentence-transformers", "OPERA", "difference"], lines)


def main() -> None:
    """Train what is missing, then print the table."""
    options = read_options(__doc__, MODELS, settings=SETTINGS, seeds="0", rivals=RIVALS)
    results = Results(STORED / "rivals.csv", KEY)
    if not options.tables:
        rivals = [rival for rival in options.rivals if rival != "flag" or options.model not in STATIC]
        train_missing(results, options, rivals, measure, lambda row: (row["lr"], row["nDCG@10"], row["seconds"]))
    print(table(results, options.model))
    print(by_data_set(results))


if __name__ == "__main__":
    main()
