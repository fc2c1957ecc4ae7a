"""``opera train``."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from opera.cli.options import (
    MODELS,
    AlsoOption,
    Bm25Option,
    ConfigOption,
    DataArgument,
    JsonOption,
    SetOption,
    TableOptions,
    TrainerOption,
    collect_values,
    interruptible,
    path_option,
    show,
    source_option,
    with_options,
)
from opera.cli.results import (
    how_to_use,
    print_before_after,
    print_next,
    print_parts,
)
from opera.cli.screen import Screen
from opera.config.training import FLAGS
from opera.core.errors import SettingError
from opera.core.figures import PRIMARY
from opera.core.settings import SettingDoc
from opera.core.terminal import say
from opera.run_folder.folder import Run

NO_GAIN = 3
"""Exit status of ``--require-gain`` unless the verdict is ``better``."""
WIDEST = 100
"""Most characters in a line of the list of settings."""


def _print_settings(requested: bool) -> None:
    if requested:
        from opera.config.recipe import docs_by_group

        say(settings_text(docs_by_group()))
        raise typer.Exit


def settings_text(groups: Mapping[str, Sequence[SettingDoc]]) -> str:
    """List settings by group, folded to the terminal's width.

    The first line of a setting has its name, default and values. Its help and the source of the
    default follow.
    """
    fold = partial(
        textwrap.fill,
        width=min(shutil.get_terminal_size().columns, WIDEST),
        subsequent_indent=" " * 6,
        break_on_hyphens=False,
    )
    lines = ["--set NAME=VALUE, or NAME: VALUE in a recipe (--config); auto: OPERA chooses"]
    for group, docs in groups.items():
        lines.append(f"\n{group}")
        for doc in docs:
            lines.append(fold(f"{doc.name} = {doc.default}   ({doc.kind})", initial_indent="  "))
            lines.append(fold(f"{doc.help} [{doc.source}]", initial_indent=" " * 6))
    return "\n".join(lines)


@with_options(*FLAGS)
def train(
    *,
    data: DataArgument = None,
    out: Annotated[Path, path_option("--out", "run folder to write")],
    model: Annotated[
        str | None, source_option("--model", f"{MODELS}; any name with --query-vectors")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="denoise (the default), ft, rp, sp, sp+cbs, infobatch, dp, sp+dp, or a method "
            "that you registered",
        ),
    ] = None,
    bm25: Bm25Option = None,
    set_: SetOption = None,
    trainer: TrainerOption = None,
    config: ConfigOption = None,
    also: AlsoOption = None,
    require_gain: Annotated[
        bool,
        typer.Option(
            "--require-gain",
            help="exit with status 3 unless the model is better on dev and on test",
        ),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace the run in --out")
    ] = False,
    help_settings: Annotated[
        bool,
        typer.Option(
            "--help-settings",
            help="list all settings, then exit",
            is_eager=True,
            callback=_print_settings,
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="estimate time and memory, then exit; writes nothing")
    ] = False,
    tables: TableOptions,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Adapt a model to a data set, and compare it with the base model on the test split."""
    from opera.config.recipe import make_recipe, recipe_path
    from opera.config.training import reads_lists
    from opera.data.loading import additional_sources
    from opera.run.adapt import adapt, foresee
    from opera.run_folder.housekeeping import check_reads_survive

    values = collect_values(
        config,
        set_,
        trainer,
        method=method,
        bm25=bm25,
        **settings,
    )
    lists = reads_lists(values)
    source = tables.source(data, strict=not lists)
    if require_gain and not make_recipe(values).train.guard:
        raise SettingError(
            "--require-gain: needs the guard's verdict, but guard is false; pass --set guard=true"
        )
    if overwrite:
        check_reads_survive(out, map(recipe_path, config or []))
    if plan and resume:
        raise SettingError("--plan: estimates a new run; leave --resume out")
    more = additional_sources(also or (), **tables.reading)
    reading = tables.reading if lists else {}
    call = {"also": more, "model": model, "out": out, "overwrite": overwrite, **reading}
    if plan:
        with interruptible(lambda: "nothing was written"):
            costs = foresee(source, **call, **values)
        show(as_json, costs.as_dict, lambda screen: screen.lines(costs.sentence))
        return
    started = time.time()
    with interruptible(lambda: _how_to_continue(out, started, overwrite)):
        run = adapt(source, resume=resume, **call, **values)
    show(as_json, run.summary.as_dict, partial(_print_run, run=run))
    if require_gain and run.summary.verdict != "better":
        raise typer.Exit(NO_GAIN)


def _how_to_continue(out: Path, started: float, overwrite: bool) -> str:
    from opera.run_folder.housekeeping import run_started_after

    if not run_started_after(out, started):
        return "nothing was written yet: the same command starts again"
    without = ", without --overwrite," if overwrite else ""
    return f"the same command with --resume{without} continues from the last checkpoint"


def _print_run(screen: Screen, run: Run) -> None:
    from opera.run_folder.cutoffs import PRECISIONS

    measures, cutoffs = run.measures, run.record.cutoffs
    print_before_after(screen, run)
    print_parts(screen, run)
    # the middle precision, if any score reaches that
    if cutoffs is not None and (cutoff := cutoffs.cutoff(PRECISIONS[1])) is not None:
        screen.lines(f"\n{cutoff.sentence}")
    if run.record.guard is None and measures["final"][PRIMARY] < measures["base"][PRIMARY]:
        screen.lines(f"{PRIMARY} fell: drop guard=false, or try fewer --steps or a lower --lr")
    screen.lines(f"\n{how_to_use(run)}")
    print_next(screen, run)
