"""``opera theory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import Answer, SeedOption
from opera.cli.screen import Screen
from opera.core.errors import SettingError

if TYPE_CHECKING:
    from opera.diagnostics.simulation import Outcome, Point


def theory(
    noise: Annotated[
        list[float] | None, typer.Option("--noise", help="noise rates of the table; repeatable")
    ] = None,
    auc: Annotated[
        list[float] | None, typer.Option("--auc", help="scoring qualities of the table; repeatable")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="k, v, beta, angle, documents, repeats, dimension, concentration, as key=value",
        ),
    ] = None,
    seed: SeedOption = 0,
) -> Answer:
    """When does pruning help? Theorem 1 alongside a simulation using OPERA's own methods."""
    from opera.config.yaml import parse_assignments
    from opera.diagnostics.simulation import AUCS, NOISES, World, as_records, grid

    noises, aucs = noise or NOISES, auc or AUCS
    base = {"noise": noises[len(noises) // 2], "auc": aucs[-1], "seed": seed}
    assigned = parse_assignments(set_ or [])
    if twice := base.keys() & assigned.keys():
        name = twice.pop()
        raise SettingError(f"--set {name}: has an option of its own, --{name}; use that")
    world = World.parse({**base, **assigned})
    points = grid(world, noises, aucs)
    names = ("k", "v", "beta", "angle", "documents")
    held = ", ".join(f"{name} = {getattr(world, name):g}" for name in names)
    return Answer(
        lambda: {"points": as_records(points)}, partial(_print_theory, points=points, held=held)
    )


def _print_theory(screen: Screen, points: Sequence[Point], held: str) -> None:
    """Print Theorem 1 and the simulation for each world; ``held`` lists the settings that all
    worlds share.
    """
    from opera.diagnostics.simulation import METHOD_NAMES

    def similarities(outcomes: Mapping[str, Outcome]) -> str:
        return " ".join(f"{outcomes[name].similarity:.3f}" for name in METHOD_NAMES)

    heads = (f"{column}\n" + "    ".join(METHOD_NAMES) for column in ("theorem", "simulated"))
    rows = [
        (
            f"{point.world.noise:g}",
            f"{point.world.auc:g}",
            *(f"{point.closed_form[name].precision:.3f}" for name in ("sp", "dp")),
            similarities(point.closed_form),
            similarities(point.simulated),
            point.best or "–",
        )
        for point in points
    ]
    expected = "E, the expected cosine of the best query embedding with a true document"
    screen.heading(f"{expected}; {held}")
    screen.table(("noise", "AUC", "γ", "ρ", *heads, "best by\ntheorem"), rows, words=0)
    largest = max(outcome.error for point in points for outcome in point.simulated.values())
    screen.lines(
        "γ, ρ: share of true documents among those that sp keeps and dp prefers. Pruning beats ft "
        "if it exceeds\n1 - noise; then, at γ = ρ, sp also beats dp. If scores mislead (AUC below "
        "0.5), dp loses less than sp.",
        "simulated: the real methods, without variance, as in the theorem; standard errors up to "
        f"{largest:.4f}.",
    )
