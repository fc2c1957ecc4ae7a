"""When does DP help? The paper's claim in the paper's regime, on a transformer.

    OMP_NUM_THREADS=1 nice -n 15 python reproduction/studies/transformer.py             # trains what is missing; days
    OMP_NUM_THREADS=1 nice -n 15 python reproduction/studies/transformer.py --parts a,f # only some parts, in this order
    python reproduction/studies/transformer.py --plan                                   # what is missing, with hours
    python reproduction/studies/transformer.py --tables                                 # prints tables, draws the plot

all-MiniLM-L6-v2 with 64 tokens of a document and 32 of a query, batch 64. Every finished run adds its rows to
results, so the study can be stopped at any time; a run that was stopped goes on from its last checkpoint. A
data set without a dev split gets one as in the product, the same for every run. Reads ``../shared``, and stops with a
message if it is absent.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import subprocess
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback

import dp_denoise  # noqa: F401  registers dp+denoise
import opera
from opera.config.recipe import make_recipe
from opera.core.cache import sole_use
from opera.core.rng import generator
from opera.data import Mixture, RetrievalData
from opera.data.splits import draw_missing_splits
from opera.guard.choice import Weights
from opera.retrieval.device import describe_device, pick_device, resolve_precision
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.run_folder.folder import Run as RunFolder
from opera.run_folder.folder import RunWriter
from opera.training.build import build_training_set
from opera.training.prepare import encoder_of, load_and_check
from opera.training.trainer import make_sampler, train
from opera_paper.noise import add_wrong_pairs
from study import DATA, ROOT, STORED, fill, need, parsed, words
from transformer_tables import (
    LONG,
    LONG_TEXTS,
    MAIN,
    MEASURES,
    SETS,
    TransformerResults,
    base_regime,
    draw_lengths,
    page_table,
    print_tables,
)

FIGURE = ROOT / "docs" / "dp-by-step.svg"
RESULTS, RUNS = STORED / "transformer.csv", ROOT / "runs" / "transformer"
LENGTHS = {"max_query_length": 32, "max_passage_length": 64}
HARD = {"negatives": "hard", "range": "10:100"}
NEGATIVES = {"scifact": HARD, "entailmentbank": HARD}
"""The paper's ranges where the corpus is large enough (464 documents of ToolLens are not), else random ones."""
REGIMES: dict[str, dict[str, Any]] = {
    "plain": {},
    "random negatives": {"negatives": "random", "range": None},
    "no mask": {"mask_known_positives": False},
    LONG_TEXTS: {"max_query_length": 64, "max_passage_length": 512},
}
"""What changes the settings; ``positives=4`` and ``wrong labels`` change the data, ``defaults`` are the product's."""
RATES, TEMPERATURES = (2e-5, 1e-4, 5e-5, 1e-5, 2e-4), (0.02, 0.05)
CHEAPEST_FIRST = ("entailmentbank", "scifact", "nfcorpus", "toollens")
FIRST = (*MAIN, "dp:levels=document", "dp:levels=query", "dp:query_score=similarity")
REST = (*FIRST[4:], "dp:query_score=loss", "sp:k=0.5", "sp:k=0.25", "sp+dp:k=0.5", "rp:k=0.5", "rp:k=0.25")
NOISY = ("ft", "dp", "denoise", "dp+denoise")


@dataclass(frozen=True)
class Run:
    """One training; everything that decides its result."""

    set: str
    method: str
    temperature: float = 0.02
    lr: float = 2e-5
    steps: int = 150
    seed: int = 0
    regime: str = "plain"

    @property
    def name(self) -> str:
        """The fields in one line; also the folder."""
        return " ".join(str(value) for value in asdict(self).values())


def queue(results: TransformerResults) -> dict[str, Iterator[Run]]:
    """The runs of each part, the most decisive part first; rates come from the results when a part begins."""

    def runs(methods: tuple[str, ...], sets: tuple[str, ...] = SETS, **values: Any) -> Iterator[Run]:
        return (Run(name, method, **values) for method in methods for name in sets)

    def at_best_rates(methods: tuple[str, ...], temperatures: Any = TEMPERATURES, **values: Any) -> Iterator[Run]:
        for run in runs(methods, **values):
            for temperature in temperatures:
                yield replace(run, temperature=temperature, lr=results.best_rate(run.set, temperature))

    def rates() -> Iterator[Run]:
        for rate in RATES:
            for temperature in TEMPERATURES:
                yield from runs(("ft",), temperature=temperature, lr=rate)

    def cuts() -> Iterator[Run]:
        for kept in (1, 4, 16, 2, 8):
            yield from runs(("ft", "dp"), ("nfcorpus",), regime=f"positives={kept}")
        for kept in (1, 4):
            yield from runs(("ft", "dp"), ("nfcorpus",), regime=f"positives={kept}, others unknown")
        yield from runs(("ft", "dp"), ("nfcorpus", "toollens"), regime="no mask")
        yield from runs(("ft", "dp"), ("scifact", "entailmentbank"), regime="random negatives")

    def second_seeds() -> Iterator[Run]:
        yield from runs(MAIN, seed=1)
        yield from at_best_rates(MAIN, seed=1)

    def defaults(methods: tuple[str, ...] = MAIN) -> Iterator[Run]:
        for seed in (0, 1):
            for name in CHEAPEST_FIRST:
                yield from runs(methods, (name,), temperature=0, lr=0, steps=0, seed=seed, regime="defaults")

    def decisive() -> Iterator[Run]:
        yield from defaults(("ft", "dp"))
        for name in CHEAPEST_FIRST:
            yield from runs(("ft", "dp"), (name,))

    def wrong_labels() -> Iterator[Run]:
        yield from at_best_rates(NOISY, (0.05,), regime="wrong labels")
        yield from runs(NOISY, regime="wrong labels")

    def lengths() -> Iterator[Run]:
        yield from runs(("ft", "dp"), steps=LONG)
        yield from at_best_rates(("ft", "dp"), (0.05,), steps=LONG)

    def long_texts() -> Iterator[Run]:
        for seed in (0, 1):
            yield from runs(("ft", "dp"), steps=LONG, seed=seed, regime=LONG_TEXTS)
            yield from at_best_rates(("ft", "dp"), (0.05,), steps=LONG, seed=seed, regime=LONG_TEXTS)

    return {
        "first": decisive(), "a": runs(FIRST), "b": rates(), "c": at_best_rates(MAIN), "d": cuts(), "e": second_seeds(),
        "f": defaults(), "g": wrong_labels(), "h": lengths(), "i": at_best_rates(REST), "j": long_texts(),
    }  # fmt: skip


def load(run: Run) -> RetrievalData:
    """Load the data of a run with its dev split, cut to some positives per query where the regime says so.

    The positives that are cut stay known, so they are still no negatives, unless they are to be unknown.
    """
    data = opera.load_data(DATA / run.set)
    if run.regime == "defaults":
        return data
    data = draw_missing_splits(Mixture.of(data), seed=0, test_fraction=0.1, needs_dev=True).joined
    if run.regime.startswith("wrong labels"):
        share = float(run.regime.partition("=")[2] or 0.3)
        return add_wrong_pairs(data, "random", share, run.seed, splits=("train",))[0]
    if not run.regime.startswith("positives="):
        return data
    count, _, unknown = run.regime.removeprefix("positives=").partition(", ")
    relevant = data.training_split().relevant()
    order = generator(0, "study.transformer.positives").permutation(len(relevant.doc_rows))
    order = order[np.argsort(relevant.query_index[order], kind="stable")]  # shuffled within each query
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - relevant.offsets[relevant.query_index[order]]
    keep = place < int(count)
    held_out = None if unknown else relevant.select_judgements(~keep)
    splits = {**data.splits, "train": relevant.select_judgements(keep)}
    return replace(data, splits=splits, held_out=held_out, fingerprint=f"{data.fingerprint}/{run.regime}")


def settings_of(run: Run) -> dict[str, Any]:
    """The settings of a run without the guard."""
    method, *options = run.method.split(":")
    fixed = {"guard": False, "per_device_train_batch_size": 64, "save_steps": 50, "logging_steps": 1000, **LENGTHS}
    chosen = {"temperature": run.temperature, "learning_rate": run.lr, "max_steps": run.steps, "seed": run.seed}
    negatives = NEGATIVES.get(run.set, {"negatives": "random"})
    options_of_method = {name: parsed(value) for name, value in (option.split("=") for option in options)}
    return {"method": method, **fixed, **chosen, **negatives, **REGIMES.get(run.regime, {}), **options_of_method}


def measured(encoder: Encoder, data: RetrievalData) -> dict[str, np.ndarray]:
    """Each query's measures on dev and test."""
    values = {
        split: evaluate_encoder(encoder, Mixture.of(data), split, MEASURES).per_query for split in ("dev", "test")
    }
    return {f"{split} {measure}": values[split][measure] for split in values for measure in MEASURES}


class EveryTenth(TrainerCallback):  # type: ignore[misc]
    """Calls a function with the step at every tenth of training but the last."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure."""
        if state.global_step % max(1, state.max_steps // 10) == 0 and state.global_step < state.max_steps:
            self.call(state.global_step)


def train_run(run: Run, folder: Path, results: TransformerResults) -> None:
    """Train and measure a run without the guard; long runs also at every tenth."""
    data, settings = load(run), settings_of(run)
    prepared = load_and_check(Mixture.of(data), "minilm", make_recipe(settings))
    model, base = prepared.model.trained, Weights.of(prepared.model.trained)
    training_set = build_training_set(prepared)
    sampler = make_sampler(training_set, prepared.recipe)

    def measure() -> dict[str, np.ndarray]:
        values = measured(encoder_of(model, prepared.settings, show_progress=False, embeddings={}), data)
        model.train()
        return values

    every_tenth = EveryTenth(lambda step: results.add_measured(asdict(run), measure(), step=step))
    callbacks = [every_tenth] if run.steps >= LONG else []
    writer = RunWriter(folder)
    train(model, training_set, sampler, prepared.settings, writer, resume=True, callbacks=callbacks)
    moved = [(now - base.tensors[name]).square().sum() for name, now in Weights.of(model).tensors.items()]
    drawn, pairs = sampler.times_drawn(), training_set.pairs
    wrong = np.zeros(len(drawn), dtype=bool)
    if run.regime.startswith("wrong labels"):
        wrong = ~load(replace(run, regime="plain")).training_split().contains(training_set.train)
    step_seconds = RunFolder(folder).trace()["seconds"].to_numpy()
    facts = {
        "train_queries": pairs.n_queries,
        "train_pairs": len(drawn),
        "moved": float(np.sqrt(np.sum(moved) / np.sum([part.square().sum() for part in base.tensors.values()]))),
        "queries_sampled": float((pairs.sum_by_query(drawn > 0) > 0).mean()),
        "pairs_sampled": float((drawn > 0).mean()),
        "wrong_sampled": drawn[wrong].sum() / drawn.sum() if wrong.any() else "",
        "seconds": float(np.median(step_seconds) * run.steps),
        "settings": " ".join(f"{name}={value}" for name, value in sorted(settings.items())),
    }
    results.add_measured(asdict(run), measure(), step=run.steps, **facts)


def adapt_run(run: Run, folder: Path, results: TransformerResults) -> None:
    """Train a run as the product does; measure before and after λ is chosen."""
    resume, data = (folder / "run.json").is_file(), load(run)
    finished = opera.adapt(
        data,
        model="minilm",
        out=folder,
        method=run.method,
        seed=run.seed,
        negatives="random",
        resume=resume,
    )
    table, guard, used = finished.per_query(), finished.record.guard, finished.settings
    settings = " ".join(f"{name}={used[name]}" for name in ("max_steps", "learning_rate", "temperature"))
    facts = {"settings": settings, "mixing_weight": "" if guard is None else guard.mixing_weight}
    for regime, moment in (("defaults, λ = 1", "fine_tuned"), ("defaults", "final")):
        values = {f"test {measure}": table[f"{moment} {measure}"].to_numpy() for measure in MEASURES}
        results.add_measured({**asdict(run), "regime": regime}, values, step=0, **facts)


def measure_base(run: Run, results: TransformerResults) -> None:
    """Measure the base model on the data set of a run, once for each length of texts."""
    base = replace(run, method="base", temperature=0, lr=0, steps=0, seed=0, regime=base_regime(run.regime))
    if not results.has_finished(asdict(base)):
        lengths = {} if base.regime == "defaults" else LENGTHS | REGIMES[base.regime]
        values = measured(open_encoder("minilm", **lengths), load(replace(run, regime="plain")))
        results.add_measured(asdict(base), values, step=0)


def run_all(results: TransformerResults, parts: list[str], limit: int | None) -> None:
    """Train what is missing; a run that fails is reported and left for the next start."""
    for part in parts:
        for run in queue(results)[part]:
            run = run if limit is None else replace(run, steps=min(run.steps, limit))
            if results.has_finished(asdict(run)):
                continue
            measure_base(run, results)
            folder, start = RUNS / run.name.replace(":", ","), time.perf_counter()
            folder.mkdir(parents=True, exist_ok=True)
            try:
                (adapt_run if run.regime == "defaults" else train_run)(run, folder, results)
            except Exception:
                traceback.print_exc()
            else:
                means = " ".join(f"{mean:.2f}" for mean in results.means(asdict(run)))
                print(f"{part} {run.name}: {means} ({time.perf_counter() - start:.0f} s)", flush=True)
            shutil.rmtree(folder)


def print_plan(results: TransformerResults) -> None:
    """Count the missing runs of each part; a rate that is not known yet counts as the paper's."""
    seen: set[str] = set()
    for part, runs in queue(results).items():
        missing = [run for run in runs if run.name not in seen and not results.has_finished(asdict(run))]
        seen |= {run.name for run in missing}
        print(f"part {part}: {len(missing)} runs missing, {sum(run.steps or 200 for run in missing)} steps")


def main() -> None:
    """Train what is missing, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=words, default=["first", *"abcdefghij"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--limit", type=int, help="most steps of a run, to try the script")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    device = pick_device()
    computed_on = f"{describe_device(device)}, {resolve_precision('auto', device, is_transformer=True)}"
    results = TransformerResults(options.results, {"commit": commit, "device": computed_on})
    if options.tables:
        print_tables(results)
        draw_lengths(results, FIGURE)
        fill(ROOT / "docs" / "benchmarks.md", {"transformer": page_table(results)})
    elif options.plan:
        print_plan(results)
    else:
        need("../shared/data")
        logging.disable(logging.INFO)
        RUNS.mkdir(parents=True, exist_ok=True)
        with sole_use(RUNS, "trains the runs of this study"):
            run_all(results, options.parts, options.limit)


if __name__ == "__main__":
    main()
