"""What would users run otherwise? The same model, data and number of queries in other trainers.

    OMP_NUM_THREADS=1 python reproduction/studies/rivals.py             # trains what is missing, prints the table
    OMP_NUM_THREADS=1 python reproduction/studies/rivals.py --tables    # prints the table of the stored results

- ``st`` is the recipe of an experienced user of sentence-transformers: ``MultipleNegativesRankingLoss``, batches
  without duplicates, warm-up, three learning rates, and the best checkpoint by nDCG@10 on dev, measured up to five
  times in the training. ``st-mined`` adds a negative per pair by ``mine_hard_negatives`` with a relative
  margin of 0.05.
- ``flag`` is FlagEmbedding's training (transformers only) with its temperature, and negatives from ``opera mine``. It
  measures nothing during a training, so that dev chooses the rate only.

A rival gets the dev queries that OPERA draws, and trains on as many queries. If OPERA trains again with the dev queries
included, so does the rival, up to its best step. OPERA's runs are those of hybrid.py. Writes results/rivals.csv and
.parquet, and fills the tables of README.md and docs/other-tools.md. Reads ``../shared``. Finished runs are not
repeated.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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
from hybrid import KEY as HYBRID_KEY
from hybrid import METHOD, MODELS, NEW, STEPS, TEST_SPLITS, TOKENS
from opera.config.automatic import DEFAULTS
from opera.core.figures import DIFFERENCE, mean_interval, signed
from opera.core.rng import generator
from opera.data import Mixture, Qrels, RetrievalData
from opera.data.splits import draw_missing_splits
from opera.retrieval.locate import locate_model
from study import ROOT, SETS, STORED, Results, Row, fill, load_setting, read_options, table_lines, train_missing

sys.path.insert(0, str(ROOT / "benchmarks" / "encoder"))
from environment import flagembedding

KEY = ("model", "setting", "rival", "seed")
SETTINGS = [*NEW, *SETS]
RIVALS = ("st", "st-mined", "flag")
RATES = {"static": (3e-3, 1e-2, 3e-2), "minilm": (2e-5, 1e-4, 3e-4)}
CHECKS = {"static": 5, "minilm": 2}
"""How often dev is measured in a training."""
REFIT = {"static": True, "minilm": False}
"""Whether the final model trains with the dev queries too."""
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
    """Train until step ``stop`` of a schedule of ``steps``; return the model, and nDCG@10 on dev with its step.

    With an evaluator, the model is that of the best step.
    """
    model, seen, checked = load(run), [], "no" if evaluator is None else "steps"
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            learning_rate=rate,
            warmup_steps=0.1,
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            eval_strategy=checked,
            eval_steps=(every := max(1, steps // CHECKS[run["model"]])),
            save_strategy=checked,
            save_steps=every,
            save_total_limit=1,
            load_best_model_at_end=evaluator is not None,
            metric_for_best_model="eval_dev_cosine_ndcg@10",
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
        split = draw_missing_splits(Mixture.of(data), seed=run["seed"], needs_dev=True).joined
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


def library_recipe(run: dict[str, Any], task: Task, folder: Path) -> dict[str, Any]:
    """The recipe for sentence-transformers; saves the model."""
    first, whole = (pairs_of(of, of.split("train"), run["seed"]) for of in (task.split, task.data))
    if run["rival"] == "st-mined":
        first, whole = (with_negatives(run, of, task.data) for of in (first, whole))
    evaluator, tried, models = dev_evaluator(task.split), [], {}
    for rate in RATES[run["model"]]:
        models[rate], seen = train(run, first, rate, task.steps, task.batch, task.steps, evaluator)
        tried += [(score, rate, step) for score, step in seen]
    dev, rate, step = max(tried)
    model = models[rate]
    if REFIT[run["model"]]:
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
    if REFIT[run["model"]]:
        trained(mined(task.data, "whole"), rate, "model")
    else:
        (folder / f"lr{rate}").rename(folder / "model")
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


@dataclass(frozen=True)
class Figures:
    """The stored runs of OPERA and of its rivals with one seed."""

    opera: Results
    rivals: Results

    def runs(self, model: str, settings: Sequence[str], rival: str) -> list[tuple[Row, Row]]:
        """OPERA's run and the rival's in each of the settings that both have."""
        pairs = [
            (
                self.opera.rows.get((model, setting, METHOD, 0)),
                self.rivals.rows.get((model, setting, rival, 0)),
            )
            for setting in settings
        ]
        return [(ours, theirs) for ours, theirs in pairs if ours and theirs]

    def by_setting(self, model: str) -> str:
        """A line per setting: nDCG@10 and seconds of each trainer; then the mean gains of OPERA."""
        rivals = [rival for rival in RIVALS if self.rivals.select(model=model, rival=rival)]
        lines = []
        for setting in SETTINGS:
            if not (ours := self.opera.rows.get((model, setting, METHOD, 0))):
                continue
            points = f"{ours['final']:.1f} ({ours['seconds']:.0f} s)"
            cells = [
                " ".join(
                    f"{row['nDCG@10']:.1f} ({row['seconds']:.0f} s)" for _, row in self.runs(model, [setting], rival)
                )
                for rival in rivals
            ]
            lines.append([setting, f"{ours['base']:.1f}", points, *cells])
        for name, settings in {"new documents": NEW, "known documents": SETS}.items():
            gains = [
                [ours["final"] - theirs["nDCG@10"] for ours, theirs in self.runs(model, settings, rival)]
                for rival in rivals
            ]
            lines.append(
                [
                    f"OPERA's gain, {name}",
                    "",
                    "",
                    *(signed(float(np.mean(points))) if points else "" for points in gains),
                ]
            )
        return table_lines(["setting", "base", "OPERA", *rivals], lines)

    def by_data_set(self, model: str) -> str:
        """A line per data set for known and new documents; the interval of the difference is over the test queries."""
        lines = []
        for name, documents in itertools.product(SETS, ("known", "new")):
            new = [f"{name}+new{split}" for split in TEST_SPLITS.get(name, ("",))]
            runs = self.runs(model, [name] if documents == "known" else new, "st")
            if not runs:
                continue
            differences = np.concatenate([ours["per query final"] - theirs["final"] for ours, theirs in runs])
            low, high = mean_interval(differences, bounds=DIFFERENCE)
            columns = [
                *([ours[part] for ours, _ in runs] for part in ("bm25", "base")),
                [theirs["nDCG@10"] for _, theirs in runs],
                *([ours[part] for ours, _ in runs] for part in ("final", "hybrid")),
            ]
            cells = (f"{np.mean(points):.1f}" for points in columns)
            interval = f"{signed(100 * low)} to {signed(100 * high)}"
            lines.append([name, documents, *cells, interval])
        heads = ["BM25", "base", "sentence-transformers", "OPERA", "OPERA + BM25"]
        return table_lines(["data", "documents", *heads, "OPERA's lead"], lines)


def main() -> None:
    """Train what is missing, then print the table."""
    options = read_options(__doc__, MODELS, settings=SETTINGS, seeds="0", rivals=RIVALS)
    results = Results(STORED / "rivals.csv", KEY)
    if not options.tables:
        rivals = [rival for rival in options.rivals if rival != "flag" or options.model != "static"]
        train_missing(results, options, rivals, measure, lambda row: (row["lr"], row["nDCG@10"], row["seconds"]))
    figures = Figures(Results(STORED / "hybrid.csv", HYBRID_KEY), results)
    tables = {f"trainers {model}": figures.by_setting(model) for model in MODELS}
    fill(ROOT / "docs" / "other-tools.md", tables)
    fill(ROOT / "README.md", {"readme": figures.by_data_set("static")})


if __name__ == "__main__":
    main()
