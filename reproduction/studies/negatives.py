"""Which documents may be explicit negatives? Train with all defaults and each kind of negatives, and compare.

    OMP_NUM_THREADS=1 python reproduction/studies/negatives.py             # trains what is missing, prints the tables
    OMP_NUM_THREADS=1 python reproduction/studies/negatives.py --tables    # prints the tables of the stored results

``negative_kinds.py`` describes the kinds.

Writes results/negatives.csv, and fills the table of docs/training.md. Reads ``../shared``. Finished runs are not
repeated, so the study can be stopped at any time.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import opera
from negative_kinds import DEFAULT, KINDS, OLD_DEFAULT, settings_of_kind
from opera.config.automatic import ModelKind
from opera.core.figures import EQUAL, signed
from opera.guard import choice, rule
from opera.guard.choice import Guard, Weights, mixed_weights
from opera.guard.rule import mean_variance
from opera.retrieval.evaluation import Evaluation
from opera.run import steps
from opera.run.session import Session
from opera.training.prepare import encoder_of
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

KEY = ("model", "setting", "kind", "seed")
SETTINGS = [f"{name}{change}" for change in ("+new", "", "+new+n200", "+n60") for name in SETS]
MODELS: dict[str, str | Path] = {"static": STATIC_MODEL, "adapter": STATIC_MODEL, "minilm": "minilm", "lora": "minilm"}
KIND_OF_MODEL: dict[str, ModelKind] = {"static": "static", "adapter": "adapter", "minilm": "small", "lora": "small"}
SHORT = {"max_steps": 200, "max_query_length": 64, "max_passage_length": 64, "refit": False}
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "static": {},
    "adapter": {"adapter": "query"},
    "minilm": SHORT,
    "lora": {**SHORT, "lora": "r=16"},
}


class AllMixtures:
    """Takes the fine-tuned model as the final one, and measures every mixture with the base model on dev and test.

    With these figures, any rule of the guard can be replayed without another training.

    Attributes:
        figures: by column of the results.
    """

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch the runs of the block."""
        save_and_measure = steps._save_and_measure

        def measure_first(session: Session, base: Evaluation, guard: Guard, mixing_weight: float) -> Any:
            self.measure(session, base, guard)
            return save_and_measure(session, base, guard, mixing_weight)

        with (
            patch.object(choice, "choose_weight", lambda per_query, *_: max(per_query)),
            patch.object(steps, "_save_and_measure", measure_first),
        ):
            yield

    def measure(self, session: Session, base: Evaluation, guard: Guard) -> None:
        """Measure the mixtures."""
        prepared, fine_tuned = session.prepared, Weights.of(session.prepared.model.trained)
        weights = sorted(guard.results)
        measure = prepared.settings.metric_for_best_model
        dev = [guard.results[weight].per_query[measure] for weight in weights]
        for low, high, first, second in zip(weights, weights[1:], dev, dev[1:], strict=False):
            self.figures[f"variance {low}-{high}"] = mean_variance(second - first)
        for weight in weights:
            test = base
            if weight > 0:
                mixed_weights(guard.base, fine_tuned, weight).put_into(prepared.model.trained)
                encoder = encoder_of(prepared.model.trained, prepared.settings, embeddings=guard.embeddings)
                test = steps._on_test(encoder, prepared)
            self.figures[f"dev {weight}"] = 100 * guard.results[weight].measures[measure]
            self.figures |= {f"test {weight} {name}": 100 * test.measures[name] for name in ("nDCG@10", "R@20")}
        fine_tuned.put_into(prepared.model.trained)


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Train with all defaults but the kind of negatives; return the figures of every mixture, in points."""
    data = load_setting(run["setting"], run["seed"])
    train = data.training_split()
    labelled = len(np.unique(train.pairs().pair_doc))
    started, mixtures = time.monotonic(), AllMixtures()
    with tempfile.TemporaryDirectory() as folder, mixtures.watch():
        trained = opera.adapt(
            data,
            model=MODELS[run["model"]],
            out=Path(folder, "run"),
            seed=run["seed"],
            **MODEL_SETTINGS[run["model"]],
            **settings_of_kind(run["kind"]),
        )
        guard, used = trained.record.guard, trained.settings
        assert guard is not None
        return {
            "documents": len(data.corpus),
            "unlabelled": len(data.corpus) - labelled,
            "draws": used["max_steps"] * used["per_device_train_batch_size"] / len(data.corpus),
            "seen": guard.test_seen,
            "refit": guard.refit,
            **mixtures.figures,
            "seconds": time.monotonic() - started,
        }


def mixing_weights(row: Mapping[str, Any]) -> list[float]:
    """The mixing weights that were measured."""
    return [float(name.split()[1]) for name in row if name.startswith("dev ")]


def replayed(row: Mapping[str, Any]) -> float:
    """The mixing weight that the guard's rule chooses."""
    weights = mixing_weights(row)
    dev = [row[f"dev {weight}"] / 100 for weight in weights]
    variances = [row[f"variance {low}-{high}"] for low, high in pairwise(weights)]
    anchors = rule.anchors_of(KIND_OF_MODEL[row["model"]])
    gains = rule.expected_gains_of_steps(weights, np.diff(dev).tolist(), variances, row["seen"], anchors)
    helpful = [weight == 0 or mean - dev[0] > EQUAL for weight, mean in zip(weights, dev, strict=True)]
    return weights[int(np.argmax(np.where(helpful, gains, -np.inf)))]


def final(row: Mapping[str, Any], measure: str = "nDCG@10") -> float:
    """The final model's figure on test."""
    return float(row[f"test {replayed(row)} {measure}"])


def mean_of(results: Results, column: Callable[[Mapping[str, Any]], float], **fields: Any) -> float:
    """The mean over the seeds of a column; NaN without runs."""
    return float(np.mean([column(row) for row in results.select(**fields)] or [np.nan]))


COLUMNS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "fine-tuned nDCG@10": lambda row: row["test 1.0 nDCG@10"],
    "final nDCG@10": final,
    "final R@20": lambda row: final(row, "R@20"),
    "mixing weight": replayed,
    "best mixing weight": lambda row: max(mixing_weights(row), key=lambda weight: row[f"test {weight} nDCG@10"]),
}


def table(results: Results, model: str, column: Callable[[Mapping[str, Any]], float]) -> str:
    """A line per setting, a column per kind."""
    kinds = [kind for kind in KINDS if results.select(model=model, kind=kind)]
    lines = []
    for setting in SETTINGS:
        if rows := results.select(model=model, setting=setting, kind=OLD_DEFAULT):
            values = [mean_of(results, column, model=model, setting=setting, kind=kind) for kind in kinds]
            facts = [f"{rows[0]['draws']:.0f}", f"{rows[0]['test 0.0 nDCG@10']:.1f}"]
            lines.append([setting, *facts, *(f"{value:.{2 if max(values) <= 1 else 1}f}" for value in values)])
    return table_lines(["setting", "draws", "base nDCG@10", *kinds], lines)


PAGE_KINDS = {
    OLD_DEFAULT: "random",
    "none": "none",
    "seen": "labelled",
    "capped-3": "at most 3 draws",
    DEFAULT: "OPERA",
}
"""The kinds in the table of docs/training.md, and their names there."""


def page_table(results: Results) -> str:
    """A line per setting of the static model: fine-tuned and final nDCG@10, as means over the seeds."""
    lines = []
    for setting in (f"{name}{ending}" for ending in ("+new", "") for name in SETS):
        rows = results.select(model="static", setting=setting, kind=DEFAULT)
        line = [f"`{setting}`", f"{rows[0]['draws']:.0f}", f"{rows[0]['test 0.0 nDCG@10']:.1f}"]
        for kind in PAGE_KINDS:
            means = [
                mean_of(results, COLUMNS[name], model="static", setting=setting, kind=kind)
                for name in ("fine-tuned nDCG@10", "final nDCG@10")
            ]
            line.append(" / ".join(f"{mean:.1f}" for mean in means))
        lines.append(line)
    return table_lines(["data", "draws", "base", *PAGE_KINDS.values()], lines)


def difference(results: Results, model: str, setting: str, kind: str) -> float:
    """The mean difference to the old default, over the seeds of both; NaN without runs."""
    points = {
        of: {row["seed"]: final(row) for row in results.select(model=model, setting=setting, kind=of)}
        for of in (kind, OLD_DEFAULT)
    }
    seeds = sorted(points[kind].keys() & points[OLD_DEFAULT].keys())
    return float(np.mean([points[kind][seed] - points[OLD_DEFAULT][seed] for seed in seeds] or [np.nan]))


def comparisons(results: Results, model: str) -> str:
    """A line per kind: the difference to the old default by group of settings, and the worst setting."""
    lines = []
    for kind in (kind for kind in KINDS if kind != OLD_DEFAULT):
        cells = []
        for ending in ("+new", "", "+new+n200"):
            differences = [difference(results, model, f"{name}{ending}", kind) for name in SETS]
            test = OverSettings.of([value for value in differences if np.isfinite(value)] or [np.nan])
            cells += [signed(test.difference), signed(np.nanmin([*differences, np.inf]))]
        lines.append([kind, *cells])
    heads = [f"{group}{what}" for group in ("new", "known", "new, 200 queries") for what in ("", ": worst")]
    return table_lines(["kind", *heads], lines)


def left_out(results: Results, model: str) -> str:
    """A line per data set: the threshold of draws that suits the other three, and what it gains over the old default.

    Above a threshold the kind is ``seen``, else the old default; one seed. The thresholds to try are the geometric
    means of neighbouring draws of the other data sets.
    """
    runs = []
    for name, ending in itertools.product(SETS, ("+new", "", "+new+n200")):
        fields = {"model": model, "setting": f"{name}{ending}", "seed": 0}
        if all(results.has({**fields, "kind": kind}) for kind in (OLD_DEFAULT, "seen")):
            old, seen = (results.of({**fields, "kind": kind}) for kind in (OLD_DEFAULT, "seen"))
            runs.append((name, old["draws"], final(seen) - final(old)))
    lines = []
    for name in SETS:
        draws = sorted({draws for of, draws, _ in runs if of != name})
        thresholds = [0.0, *(float(np.sqrt(low * high)) for low, high in pairwise(draws)), np.inf]
        mean_gains = {
            threshold: np.mean([gain * (draws > threshold) for of, draws, gain in runs if of != name])
            for threshold in thresholds
        }
        chosen = max(thresholds, key=lambda threshold: mean_gains[threshold])
        gains = [gain * (draws > chosen) for of, draws, gain in runs if of == name]
        lines.append([name, f"{chosen:.1f}", f"{signed(mean_gains[chosen])}", " ".join(map(signed, gains))])
    return table_lines(["without", "threshold", "mean gain on the other three", "gains on the one left out"], lines)


def main() -> None:
    """Train what is missing, then print the tables."""
    options = read_options(__doc__, MODELS, settings=SETTINGS, seeds="0", kinds=KINDS)
    results = Results(STORED / "negatives.csv", KEY)
    if not options.tables:
        train_missing(
            results,
            options,
            options.kinds,
            measure,
            lambda row: (row["test 1.0 nDCG@10"], final(row), row["seconds"]),
        )
    for name, column in COLUMNS.items():
        print(f"{name}\n{table(results, options.model, column)}\n")
    print(comparisons(results, options.model))
    print(left_out(results, options.model))
    fill(ROOT / "docs" / "training.md", {"negatives": page_table(results)})


if __name__ == "__main__":
    main()
