"""The command ``opera-paper``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

import opera

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _about() -> None:
    """Reproduce the tables of the OPERA paper (COLM 2026)."""


@app.command(epilog="Example: opera-paper theory --noise 0.2 --noise 0.4 --auc 0.7 --set k=0.5")
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
    seed: Annotated[int, typer.Option("--seed", help="seed of every random draw")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """When does pruning help? Theorem 1 next to a simulation with OPERA's own methods."""
    from opera_paper.theory import AUCS, NOISES, SimulationSettings, as_records, as_table, grid

    values = dict(assignment.partition("=")[::2] for assignment in set_ or [])
    for name in values.keys() & {"noise", "auc", "seed"}:
        raise opera.SettingError(f"--set {name}: use the option --{name}")
    settings = SimulationSettings.parse({**values, "seed": seed})
    points = grid(settings, noise or NOISES, auc or AUCS)
    if as_json:
        print(json.dumps({"points": as_records(points)}, indent=2))
    else:
        Console(highlight=False).print(as_table(points))


def main() -> None:
    """Run the command line; wrong input ends with one message and exit status 2."""
    try:
        app(prog_name="opera-paper")
    except opera.OperaError as error:
        print("opera-paper: error:", "\n".join(error.lines), file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print("\nopera-paper: interrupted", file=sys.stderr)
        sys.exit(130)
