"""The data behind a report, as one JSON document that its charts and its explorer read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opera.experiments.analysis import Comparison, Group
from opera.experiments.report.explorer import explorer_data
from opera.experiments.report.sampling import SCALE, run_samplings, sampling_charts
from opera.retrieval.measures import DEFAULT_MEASURES

LOSS_POINTS = 120
"""Points per line of the loss chart."""


def collect_document(comparison: Comparison, source: str | None = None) -> dict[str, Any]:
    """Collect what the page draws.

    Args:
        comparison: the results of the runs.
        source: where the texts are now, for runs on a single data set; ``None``: where the runs recorded them.
    """
    labels = list(dict.fromkeys(group.method for group in comparison.groups))
    return {
        "methods": labels,
        "baseline": comparison.baseline,
        "measures": list(DEFAULT_MEASURES),
        "scale": SCALE,
        "data": [_data_document(comparison, data, source) for data in dict.fromkeys(g.data for g in comparison.groups)],
    }


def _data_document(comparison: Comparison, data: str, source: str | None) -> dict[str, Any]:
    groups = [group for group in comparison.groups if group.data == data]
    final = comparison.final(data)
    last = [group for group in groups if group.steps == final.steps]
    return {
        "source": data,
        "name": final.name,
        "steps": final.steps,
        "untrained": final.untrained,
        "curves": {group.method: _curve([g for g in groups if g.method == group.method]) for group in groups},
        "losses": {group.method: _losses(group) for group in last},
        "evaluations": {group.method: curve for group in last if (curve := _evaluations(group))},
        "sampling": {label: sampling_charts(sampling) for label, sampling in run_samplings(last).items()},
        "explorer": explorer_data(last, comparison.baseline, source),
    }


def _curve(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One point per number of steps: mean and standard deviation of each measure, seconds of training."""
    points = []
    for group in sorted(groups, key=lambda group: group.steps):
        values = {measure: group.values(measure) for measure in DEFAULT_MEASURES}
        points.append(
            {
                "steps": group.steps,
                "seconds": round(group.training_seconds, 2),
                "mean": {measure: round(float(by_seed.mean()), 5) for measure, by_seed in values.items()},
                "std": {
                    measure: round(float(np.std(by_seed, ddof=1)), 5) if len(by_seed) > 1 else 0.0
                    for measure, by_seed in values.items()
                },
            }
        )
    return points


def _losses(group: Group) -> dict[str, list[float | None]]:
    """The training loss of the first seed, averaged over intervals of steps."""
    trace = group.runs[0].trace()
    steps, loss = trace["step"].to_numpy(), trace["loss"].to_numpy()
    parts = np.array_split(np.arange(len(steps)), min(LOSS_POINTS, len(steps)))
    return {
        "steps": [float(steps[part].mean()) for part in parts],
        "loss": [_finite(loss[part].mean()) for part in parts],
    }


def _finite(value: float) -> float | None:
    """Round for JSON; NaN and infinity, which JSON lacks, become ``None``, a gap in the line."""
    return round(float(value), 5) if np.isfinite(value) else None


def _evaluations(group: Group) -> dict[str, Any] | None:
    """The evaluations on the dev split during the first seed's training."""
    run = group.runs[0]
    evaluations = run.training.evaluations
    if not evaluations:
        return None
    measure = run.training.measure or run.settings["metric_for_best_model"]
    steps, values = zip(*evaluations, strict=True)
    return {"measure": measure, "steps": list(steps), "values": list(values)}
