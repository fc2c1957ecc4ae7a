"""``opera train``."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.cli.options import (
    BatchSizeOption,
    ColumnsOption,
    ConfigOption,
    DataArgument,
    DocumentsOption,
    EpochsOption,
    FutureOption,
    JsonOption,
    LearningRateOption,
    NegativesOption,
    OptionalModelOption,
    PairsOption,
    PresetOption,
    QueriesOption,
    RangeOption,
    SetOption,
    StepsOption,
    TeacherOption,
    TrainerOption,
    collect_values,
    given_settings,
    interruptible,
    is_main_process,
    one_source,
    path_option,
    setting_option,
)
from opera.config.trainer import PRIMARY
from opera.core.errors import SettingError
from opera.core.terminal import json_text, say

if TYPE_CHECKING:
    from opera.runs.folder import Run

NO_GAIN = 3
"""Exit status of ``--require-gain`` where the model is not better for certain."""


def _print_settings(requested: bool) -> None:
    if not requested:
        return
    from opera.cli.printing.settings import settings_text
    from opera.config.recipe import docs_by_group

    say(settings_text(docs_by_group()))
    raise typer.Exit


def train(
    context: typer.Context,
    *,
    data: DataArgument = None,
    out: Annotated[Path, path_option("--out", "run folder to write")],
    model: OptionalModelOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="ft (the default), rp, sp, sp+cbs, infobatch, dp, sp+dp, or one that you "
            "registered",
        ),
    ] = None,
    max_steps: StepsOption = None,
    epochs: EpochsOption = None,
    preset: PresetOption = None,
    per_device_train_batch_size: BatchSizeOption = None,
    learning_rate: LearningRateOption = None,
    seed: Annotated[int | None, setting_option("--seed", "seed")] = None,
    negatives: NegativesOption = None,
    range: RangeOption = None,
    teacher_scores: TeacherOption = None,
    future: FutureOption = None,
    adapter: Annotated[str | None, setting_option("--adapter", "adapter")] = None,
    lora: Annotated[str | None, setting_option("--lora", "lora")] = None,
    matryoshka: Annotated[str | None, setting_option("--matryoshka", "matryoshka")] = None,
    query_vectors: Annotated[
        str | None, setting_option("--query-vectors", "query_vectors", path=True)
    ] = None,
    document_vectors: Annotated[
        str | None, setting_option("--document-vectors", "document_vectors", path=True)
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--also", help="another data set to train on, likewise; repeatable", metavar="DATA"
        ),
    ] = None,
    mix: Annotated[str | None, setting_option("--mix", "mix")] = None,
    set_: SetOption = None,
    trainer: TrainerOption = None,
    config: ConfigOption = None,
    require_gain: Annotated[
        bool,
        typer.Option(
            "--require-gain",
            help="end with exit status 3 unless the verdict is 'better', on dev and on test",
        ),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace the run in --out")
    ] = False,
    json_: JsonOption = False,
    help_settings: Annotated[
        bool,
        typer.Option(
            "--help-settings",
            help="list every setting and exit",
            is_eager=True,
            callback=_print_settings,
        ),
    ] = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Adapt a model to a data set, and measure it before and after on the test split."""
    from opera.config.recipe import make_recipe, recipe_path
    from opera.runs.guard_words import gained
    from opera.runs.housekeeping import check_reads_survive
    from opera.training.adapt import adapt

    data = one_source(data, pairs, documents, queries, columns)
    values = collect_values(config, set_, given_settings(context))
    _refuse_label(method)
    if not make_recipe(values).train.guard and require_gain:
        raise SettingError(
            "--require-gain: needs the guard's verdict, but guard is false; pass --set guard=true"
        )
    if overwrite:
        check_reads_survive(out, map(recipe_path, config or []))
    started = time.time()
    with interruptible(lambda: _how_to_continue(out, started, overwrite)):
        run = adapt(
            [data, *(also or [])],
            model=model,
            out=out,
            resume=resume,
            overwrite=overwrite,
            **values,
        )
    if is_main_process():
        _print_run(run, json_)
    if require_gain and not gained(run.record.guard):
        raise typer.Exit(NO_GAIN)


def _how_to_continue(out: Path, started: float, overwrite: bool) -> str:
    from opera.runs.folder import TRIAL_FOLDER
    from opera.runs.housekeeping import last_complete_checkpoint, run_started_after

    if not run_started_after(out, started):
        return "nothing was written yet: the same command starts again"
    command = "the same command with --resume" + (", without --overwrite," if overwrite else "")
    step, trial = last_complete_checkpoint(out), last_complete_checkpoint(out / TRIAL_FOLDER)
    if step is None and trial is not None:
        return f"{command} continues from step {trial} of the first of two trainings"
    if step is None:
        return f"no checkpoint was saved yet: {command} starts from step 0"
    return f"{command} continues from step {step}"


def _refuse_label(method: str | None) -> None:
    """Refuse a method with settings after colons, which opera compare takes."""
    name, *assignments = re.split(r":(?=[A-Za-z_]\w*=)", method or "")
    if assignments:
        alone = " ".join(["--method", name, *(f"--set {assignment}" for assignment in assignments)])
        raise SettingError(
            f"--method {method}: settings after colons are for opera compare; use {alone}"
        )


def _print_run(run: Run, as_json: bool) -> None:
    from rich.text import Text

    from opera.cli.printing.console import console
    from opera.cli.printing.results import (
        format_rates,
        how_to_use,
        print_before_after,
        print_guard,
        print_sets,
        print_sizes,
    )
    from opera.runs.changes import changes_on_test
    from opera.runs.guard_words import verdict_words

    guard = run.record.guard
    if as_json:
        facts = {
            "guard": None if guard is None else guard.model_dump(),
            "verdict": None if guard is None else verdict_words(guard),
        }
        sizes = [size.model_dump() for size in run.record.matryoshka or ()]
        more: dict[str, Any] = {"matryoshka": sizes} if sizes else {}
        changes = changes_on_test(run.per_query(), run.measures["after"])
        more["changes"] = {name: vars(change) for name, change in changes.items()}
        if run.record.sets:
            more["sets"] = [each.model_dump() for each in run.record.sets]
        say(json_text({"run": str(run.path), **facts, "measures": run.measures, **more}))
        return
    settings, screen = run.settings, console()
    queries = run.per_query().num_rows
    if guard is None:
        screen.print("no guard: the fine-tuned weights are handed over as they are")
    else:
        print_guard(screen, guard)
    title = (
        f"{settings['method']}, {run.steps} steps, {format_rates(settings)}; {queries} test queries"
    )
    print_before_after(screen, run, title)
    print_sizes(screen, run)
    print_sets(screen, run)
    if guard is None and run.measures["after"][PRIMARY] < run.measures["before"][PRIMARY]:
        screen.print(f"{PRIMARY} fell: leave guard=false out, or try fewer --steps or a lower --lr")
    screen.print(Text(f"\n{how_to_use(run)}"))
