"""What would users run otherwise? sentence-transformers' own training on the same model, data and number of queries.

    OMP_NUM_THREADS=1 python reproduction/studies/rivals.py             # trains what is missing, prints the table
    OMP_NUM_THREADS=1 python reproduction/studies/rivals.py --tables    # prints the table of the stored results

The rival is the recipe of an experienced user: ``MultipleNegativesRankingLoss``, batches without duplicates, warm-up,
three learning rates, and the best checkpoint by nDCG@10 on dev, measured at every fifth of the training. It draws the
dev queries that OPERA draws, and trains on as many queries. As OPERA does, it then trains again with the dev queries
included, up to the best step. ``st-mined`` adds a negative per pair by ``mine_hard_negatives`` with a relative margin
of 0.05. OPERA runs with all defaults; its figures come from results/negatives.csv (see negatives.py). Writes
results/rivals.csv and .parquet. Reads ``../shared``. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import tempfile
import time
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
from negatives import MODELS, SETS
from opera.config.automatic import DEFAULTS
from opera.core.rng import generator
from opera.data import Qrels, RetrievalData
from opera.data.splits import draw_missing_splits
from opera.retrieval.locate import locate_model
from study import STORED, Results, load_setting, need, table_lines, words

KEY = ("model", "setting", "rival", "seed")
SETTINGS = [f"{name}{change}" for change in ("+new", "") for name in SETS]
RIVALS = ("st", "st-mined")
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


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Choose rate and step on dev, train again with dev included, and measure on test."""
    started = time.monotonic()
    data = load_setting(run["setting"], run["seed"])
    split = draw_missing_splits(data, seed=run["seed"], needs_dev=True)
    defaults = DEFAULTS["static" if run["model"] == "static" else "small"]
    queries = split.training_split().n_queries
    per_epoch = -(-queries // min(defaults.queries_per_batch, queries))
    most = STEPS.get(run["model"], min(max(round(defaults.epochs * per_epoch), 50), defaults.most_steps["cpu"]))
    budget = most * min(defaults.queries_per_batch, queries)
    batch = min(defaults.queries_per_batch, queries)
    while batch * SMALLEST_POOL > len(data.corpus):
        batch //= 2
    steps = -(-budget // batch)
    first, whole = (pairs_of(of, of.split("train"), run["seed"]) for of in (split, data))
    if run["rival"] == "st-mined":
        first, whole = (with_negatives(run, of, data) for of in (first, whole))
    evaluator, tried = dev_evaluator(split), []
    for rate in RATES[run["model"]]:
        _, seen = train(run, first, rate, steps, batch, steps, evaluator)
        tried += [(score, rate, step) for score, step in seen]
    dev, rate, step = max(tried)
    model, _ = train(run, whole, rate, steps, batch, step)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        test = opera.evaluate(data, model=folder)
    return {
        "lr": rate,
        "steps": steps,
        "best step": step,
        "batch": batch,
        "rows": len(whole),
        "dev nDCG@10": 100 * dev,
        **{name: 100 * test.measures[name] for name in ("nDCG@10", "R@20")},
        "seconds": time.monotonic() - started,
        "final": test.per_query["nDCG@10"],
    }


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
    """A line per setting: nDCG@10 and seconds of the base model, OPERA and each rival, as means over the seeds."""
    opera_runs = Results(STORED / "negatives.csv", ("model", "setting", "kind", "seed"))
    lines = []
    for setting in SETTINGS:
        ours = opera_runs.select(model=model, setting=setting, kind="random")
        if not ours:
            continue
        line = [setting, f"{np.mean([row['base nDCG@10'] for row in ours]):.1f}"]
        line.append(_cell([(row["final nDCG@10"], row["seconds"]) for row in ours]))
        for rival in RIVALS:
            rows = results.select(model=model, setting=setting, rival=rival)
            line.append(_cell([(row["nDCG@10"], row["seconds"]) for row in rows]))
        lines.append(line)
    return table_lines(["setting", "base", "OPERA", *RIVALS], lines)


def _cell(figures: list[tuple[float, float]]) -> str:
    if not figures:
        return ""
    points, seconds = np.mean(figures, axis=0)
    return f"{points:.1f} ({seconds:.0f} s)"


def main() -> None:
    """Train what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="train nothing")
    parser.add_argument("--model", choices=list(MODELS), default="static")
    for option, values in {"--settings": SETTINGS, "--seeds": "0", "--rivals": RIVALS}.items():
        parser.add_argument(option, type=words, default=list(values))
    options = parser.parse_args()
    results = Results(STORED / "rivals.csv", KEY)
    if not options.tables:
        need("../shared/data", "../shared/models")
        logging.disable(logging.INFO)
        for seed, rival, setting in itertools.product(map(int, options.seeds), options.rivals, options.settings):
            run = dict(zip(KEY, (options.model, setting, rival, seed), strict=True))
            if not results.has(run):
                results.add(run, **measure(run))
                row = results.of(run)
                print(*run.values(), row["lr"], row["nDCG@10"], row["seconds"], flush=True)
    print(table(results, options.model))


if __name__ == "__main__":
    main()
