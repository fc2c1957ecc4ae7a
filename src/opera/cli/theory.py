"""``opera theory``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import JsonOption, OverwriteOption, SeedOption, path_option
from opera.core.errors import SettingError
from opera.core.terminal import json_text, place, say


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
    out: Annotated[Path, path_option("--out", "chart to write: .svg, .png or .pdf")] = Path(
        "theory.svg"
    ),
    overwrite: OverwriteOption = False,
    seed: SeedOption = 0,
    json_: JsonOption = False,
) -> None:
    """When does pruning help? Theorem 1 alongside a simulation using OPERA's own methods, as a
    table and a chart.
    """
    from opera.cli.printing.console import console
    from opera.cli.printing.theory import print_theory
    from opera.config.yaml import parse_assignments
    from opera.core.extras import require
    from opera.core.files import check_output

    require("matplotlib", "opera theory")
    from opera.diagnostics.charts import FORMATS, write_theory_chart
    from opera.diagnostics.simulation import AUCS, NOISES, World, as_records, grid, sweeps

    check_output(out, "--out", FORMATS, overwrite=overwrite)
    noises, aucs = noise or NOISES, auc or AUCS
    base = {"noise": noises[len(noises) // 2], "auc": aucs[-1], "seed": seed}
    assigned = parse_assignments(set_ or [])
    if twice := base.keys() & assigned.keys():
        name = twice.pop()
        raise SettingError(f"--set {name}: has an option of its own, --{name}; use that")
    world = World.parse({**base, **assigned})
    points = grid(world, noises, aucs)
    held = ", ".join(
        f"{name} = {getattr(world, name):g}" for name in ("k", "v", "beta", "angle", "documents")
    )
    write_theory_chart(out, sweeps(world), f"noise = {world.noise:g}, AUC = {world.auc:g}, {held}")
    if json_:
        say(json_text({"chart": str(out), "points": as_records(points)}))
        return
    print_theory(console(), points, held)
    say(f"\n{place(out)}: the gain over ft by noise rate, scoring quality, share selected and β")
