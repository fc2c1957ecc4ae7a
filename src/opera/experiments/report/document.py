"""Everything a report shows, as one document that its charts and its explorer read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opera.experiments.analysis import Comparison, Group
from opera.experiments.report.explorer import explorer
from opera.experiments.report.sampling import SCALE, sampled_runs, sampling_pictures
from opera.retrieval.measures import DEFAULT_MEASURES

LOSS_POINTS = 120


def collected(comparison: Comparison, source: str | None = None) -> dict[str, Any]:
    """Collect what the page draws.

    Args:
        comparison: of the runs.
        source: where the texts are; ``None``: where the runs say. Only for runs on one data set.
    """
    labels = list(dict.fromkeys(group.method for group in comparison.groups))
    return {
        "methods": labels,
        "baseline": comparison.baseline,
        "measures": list(DEFAULT_MEASURES),
        "scale": SCALE,
        "data": [_of_data(comparison, data, source) for data in dict.fromkeys(g.data for g in comparison.groups)],
    }


def _of_data(comparison: Comparison, data: str, source: str | None) -> dict[str, Any]:
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
        "evaluations": {group.method: found for group in last if (found := _evaluations(group))},
        "sampling": {label: sampling_pictures(sampled) for label, sampled in sampled_runs(last).items()},
        "explorer": explorer(last, comparison.baseline, source),
    }


def _curve(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A point a number of steps: mean and standard deviation of each measure, seconds of training."""
    points = []
    for group in sorted(groups, key=lambda group: group.steps):
        values = {measure: group.values(measure) for measure in DEFAULT_MEASURES}
        points.append(
            {
                "steps": group.steps,
                "seconds": round(group.training_seconds, 2),
                "mean": {measure: round(float(found.mean()), 5) for measure, found in values.items()},
                "deviation": {
                    measure: round(float(np.std(found, ddof=1)), 5) if len(found) > 1 else 0.0
                    for measure, found in values.items()
                },
            }
        )
    return points


def _losses(group: Group) -> dict[str, list[float | None]]:
    """The training loss of the first seed, averaged over stretches of steps."""
    trace = group.runs[0].trace()
    steps, loss = trace["step"].to_numpy(), trace["loss"].to_numpy()
    parts = np.array_split(np.arange(len(steps)), min(LOSS_POINTS, len(steps)))
    return {
        "steps": [float(steps[part].mean()) for part in parts],
        "loss": [_number(loss[part].mean()) for part in parts],
    }


def _number(value: float) -> float | None:
    """A rounded number for JSON, which knows no NaN and no infinity: a gap in the line."""
    return round(float(value), 5) if np.isfinite(value) else None


def _evaluations(group: Group) -> dict[str, Any] | None:
    """The evaluations on the dev split during training of the first seed."""
    run = group.runs[0]
    found = run.training.evaluations
    if not found:
        return None
    measure = run.settings["metric_for_best_model"]
    return {"measure": measure, "steps": [step for step, _ in found], "values": [value for _, value in found]}
