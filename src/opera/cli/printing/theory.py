"""The table of ``opera theory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.diagnostics.theory import COMPARED, Outcome, Point


def print_theory(screen: Console, points: Sequence[Point], held: str) -> None:
    """Print what Theorem 1 says of each world, beside what the simulation gave; ``held``: what all have in common."""
    table = Table()
    for column in ("noise", "AUC", "γ", "ρ"):
        table.add_column(column, justify="right")
    for column in ("theorem", "simulated", "one query"):
        table.add_column(f"{column}\n" + "    ".join(COMPARED))
    for column in ("best by\ntheorem", "best for\none query"):
        table.add_column(column)

    def of_each(values: Mapping[str, Outcome], what: str) -> str:
        return " ".join(f"{getattr(values[name], what):.3f}" for name in COMPARED)

    for point in points:
        closed, simulated = point.closed_form, point.simulated
        table.add_row(
            f"{point.world.noise:g}",
            f"{point.world.auc:g}",
            *(f"{closed[name].precision:.3f}" for name in ("sp", "dp")),
            of_each(closed, "similarity"),
            of_each(simulated, "similarity"),
            of_each(simulated, "one_query"),
            point.best or "–",
            point.best_alone or "–",
        )
    largest = max(outcome.error for point in points for outcome in point.simulated.values())
    screen.print(Text(f"E, the expected cosine of the best query embedding with a true document; {held}", style="bold"))
    screen.print(table)
    screen.print(
        "γ, ρ: share of true documents among those that sp keeps and dp prefers. Pruning beats ft where it exceeds\n"
        "1 - noise, and there, where γ = ρ, sp beats dp; where scores mislead (AUC below 0.5), dp loses less than sp.\n"
        f"simulated: with the shipped methods, without variance, as in the theorem; standard errors to {largest:.4f}.\n"
        "one query: the embedding of one query from its own documents, which has variance too."
    )
