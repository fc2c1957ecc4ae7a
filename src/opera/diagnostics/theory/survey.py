"""When does pruning help? Theorem 1 over noise rates, scoring qualities, retention rates and strengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opera.diagnostics.theory.simulation import METHOD_NAMES, Point, World, examine
from opera.methods.selection import kept_count

NOISES = (0.1, 0.3, 0.5)
AUCS = (0.3, 0.5, 0.7, 0.9)
SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "noise": ("noise rate, 1 - m⁺/m", (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
    "auc": ("scoring quality (AUC)", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)),
    "k": ("share selected, k = v", (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
    "beta": ("document strength β", (1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20)),
}


def grid(
    world: World, noises: Sequence[float] = NOISES, aucs: Sequence[float] = AUCS
) -> list[Point]:
    """Examine every combination of noise rate and scoring quality."""
    return [examine(_with(world, noise=noise, auc=auc)) for noise in noises for auc in aucs]


def sweeps(world: World) -> dict[str, tuple[str, list[Point]]]:
    """Vary one quantity of ``world`` at a time.

    SP's k and DP's v vary together, so that both select the same documents.

    Returns:
        By field of ``World``: a label and the points.
    """

    def varied(name: str, value: float) -> World:
        return _with(world, k=value, v=value) if name == "k" else _with(world, **{name: value})

    def possible(name: str, value: float) -> bool:
        return name != "k" or kept_count(world.documents, value) > 0

    return {
        name: (label, [examine(varied(name, value)) for value in values if possible(name, value)])
        for name, (label, values) in SWEEPS.items()
    }


def as_records(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Convert points to dictionaries for JSON: the world, then each method's outcomes, in closed form and simulated."""
    return [
        {
            **point.world.model_dump(),
            "true_share": point.world.true_share,
            "closed_form": {
                name: _without_nan(vars(point.closed_form[name])) for name in METHOD_NAMES
            },
            "simulated": {name: _without_nan(vars(point.simulated[name])) for name in METHOD_NAMES},
            "best": point.best or None,
            "best_of_one_query": point.best_for_one_query or None,
        }
        for point in points
    ]


def _with(world: World, **values: float) -> World:
    return World.parse({**world.model_dump(), **values})


def _without_nan(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value == value}
