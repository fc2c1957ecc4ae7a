"""Print the table of ``opera theory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from opera.cli.printing.console import table_of
from opera.diagnostics.simulation import METHOD_NAMES, Outcome, Point


def print_theory(screen: Console, points: Sequence[Point], held: str) -> None:
    """Print Theorem 1 and the simulation for each world; ``held`` lists the settings that all
    worlds share.
    """

    def by_method(outcomes: Mapping[str, Outcome], field: str) -> str:
        return " ".join(f"{getattr(outcomes[name], field):.3f}" for name in METHOD_NAMES)

    heads = [f"{column}\n" + "    ".join(METHOD_NAMES) for column in ("theorem", "simulated")]
    rows = []
    for point in points:
        closed, simulated = point.closed_form, point.simulated
        world = (f"{point.world.noise:g}", f"{point.world.auc:g}")
        precisions = (f"{closed[name].precision:.3f}" for name in ("sp", "dp"))
        similarities = (by_method(closed, "similarity"), by_method(simulated, "similarity"))
        rows.append((*world, *precisions, *similarities, point.best or "–"))
    largest = max(outcome.error for point in points for outcome in point.simulated.values())
    screen.print(
        Text(
            f"E, the expected cosine of the best query embedding with a true document; {held}",
            style="bold",
        )
    )
    columns = ("noise", "AUC", "γ", "ρ", *heads, "best by\ntheorem")
    screen.print(table_of(columns, rows, words=0))
    screen.print(
        "γ, ρ: share of true documents among those that sp keeps and dp prefers. Pruning beats ft "
        "if it exceeds\n"
        "1 - noise; then, at γ = ρ, sp also beats dp. If scores mislead (AUC below 0.5), dp loses "
        "less than sp.\n"
        "simulated: the real methods, without variance, as in the theorem; standard errors up to "
        f"{largest:.4f}."
    )
