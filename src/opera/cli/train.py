"""``opera train`` and ``opera quickstart``: run them, and print their results."""

from __future__ import annotations

import shlex
import shutil
import sys
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
    DepthOption,
    FirstStageOption,
    JsonOption,
    MaxLengthOption,
    Screen,
    SeedOption,
    SetOption,
    TableOptions,
    TrainerOption,
    collect_values,
    flat,
    interruptible,
    list_sentence,
    path_option,
    show,
    source_option,
    with_options,
)
from opera.config.training import FLAGS
from opera.core.errors import SettingError
from opera.core.figures import PRIMARY, few_queries, in_points, points
from opera.core.files import check_folder
from opera.core.settings import SettingDoc
from opera.core.terminal import command_line, say
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


@with_options(*(name for name in FLAGS if name != "kind"))
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
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="dense, sparse or multi-vector (auto: what the model's files say), or reranker: a "
            "cross-encoder that sorts what a search finds",
        ),
    ] = None,
    first_stage: FirstStageOption = None,
    depth: DepthOption = None,
    max_length: MaxLengthOption = None,
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
    from opera.core.files import check_reads_stay
    from opera.data.loading import additional_sources
    from opera.run.adapt import adapt, foresee
    from opera.run.train_reranker import NEEDS_RERANKER, RERANKER, refuse_arguments
    from opera.run_folder.housekeeping import removed_by_overwrite

    values = collect_values(
        config,
        set_,
        trainer,
        method=method,
        kind=kind,
        bm25=bm25,
        **settings,
    )
    kind = values.pop("kind", None)
    of_reranker = {"first_stage": first_stage, "depth": depth, "max_length": max_length}
    lists = reads_lists(values)
    source = tables.source(data, strict=not lists)
    if kind == RERANKER:
        refuse_arguments({"resume": resume, "plan": plan, "also": also})
        values |= {**of_reranker, "model": model, "out": out, "overwrite": overwrite}
        values |= tables.reading if lists else {}
        _train_reranker(source, values, require_gain, as_json)
        return
    refuse_arguments(of_reranker, NEEDS_RERANKER)
    if kind is not None:
        values["kind"] = kind
    if require_gain and not make_recipe(values).train.guard:
        raise SettingError(
            "--require-gain: needs the guard's verdict, but guard is false; pass --set guard=true"
        )
    if overwrite:
        check_reads_stay(out, map(recipe_path, config or []), removed_by_overwrite(out))
    if plan and resume:
        raise SettingError("--plan: estimates a new run; leave --resume out")
    more = additional_sources(also or (), **tables.reading)
    reading = tables.reading if lists else {}
    call: dict[str, Any] = {
        "also": more,
        "model": model,
        "out": out,
        "overwrite": overwrite,
        **reading,
    }
    if plan:
        with interruptible(lambda: "nothing was written"):
            costs = foresee(source, **call, **values)
        show(as_json, costs.as_dict, lambda screen: screen.lines(*costs.lines))
        return
    started = time.time()
    with interruptible(lambda: _how_to_continue(out, started, overwrite)):
        run = adapt(source, resume=resume, **call, **values)
    show(as_json, run.summary.as_dict, partial(_print_run, run=run))
    if require_gain and run.summary.verdict != "better":
        raise typer.Exit(NO_GAIN)


def _train_reranker(
    source: Any, call: Mapping[str, Any], require_gain: bool, as_json: bool
) -> None:
    """Train a reranker, and print its result."""
    from opera.cli.reranker import print_reranker_run
    from opera.run.adapt import adapt

    with interruptible(lambda: "nothing was written: the same command starts again"):
        run = adapt(source, kind="reranker", **call)
    record = {"verdict": run.verdict, **run.record.model_dump(mode="json")}
    show(as_json, lambda: record, partial(print_reranker_run, run=run))
    if require_gain and run.verdict != "better":
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


def print_before_after(screen: Screen, run: Run) -> None:
    """Print the verdict, the final model's weights, how many labels look wrong, and the measures
    on test.

    The table has no column for the fine-tuned model if that is the final model.
    """
    from opera.experiments.tables import measures_table
    from opera.run_folder.summary import warnings_of

    guard, (verdict, *details) = run.record.guard, run.headlines
    screen.heading(verdict)
    screen.lines(*details, *(() if guard is None else warnings_of(guard)))
    print_labels(screen, run)
    rates = "learning rate {learning_rate:g}, temperature {temperature:g}".format(**run.settings)
    screen.heading(f"\n{run.settings['method']}, {run.steps} steps, {rates}")
    screen.report_table(measures_table(run))
    screen.lines(few_queries(run.summary.queries))


def print_labels(screen: Screen, run: Run) -> None:
    """Print how many training pairs look wrong, and which file lists them.

    Recommend ``denoise`` if the labels are noisy.
    """
    from opera.run_folder.summary import NOISY

    if (estimate := run.record.noisy_labels) is not None:
        is_noisy = estimate.low >= NOISY
        advises = is_noisy and run.settings["method"] != "denoise"
        advice = "; --method denoise trains less on such pairs" if advises else ""
        screen.lines(f"{list_sentence(estimate, run.path)}{advice}.")
        if is_noisy or run.settings["decisions"] is not None:
            screen.lines(
                "If the test split is as noisy, the reported scores are too low; this command "
                "shows its labels:"
            )
            screen.commands(command_line("review", run.path, "--split", "test"))


def print_parts(screen: Screen, run: Run) -> None:
    """Print the main measure by number of dimensions and by data set, if a run has several."""
    from opera.run_folder.record import mean_of_sets

    if sizes := run.record.matryoshka:
        by_size = {str(s.size): {"base": s.base, "final": s.final} for s in sizes}
        screen.heading(f"\n{PRIMARY} with the first dimensions only")
        screen.table(
            ("dimensions", "base", "final", "points"),
            [(size, *_change(test)) for size, test in {"all": run.measures, **by_size}.items()],
            words=0,
        )
    if sets := run.record.sets:
        rows = [
            (
                flat(data_set.name),
                "" if data_set.share_of_draws is None else f"{data_set.share_of_draws:.1%}",
                str(data_set.counts.get("test_queries", 0)),
                *_change(data_set.test),
            )
            for data_set in sets
        ]
        heads = ("data set", "sampled", "test queries", "base", "final", "points")
        screen.heading(f"\n{PRIMARY} on the test queries of each data set")
        screen.table(heads, [*rows, ("mean of the sets", "", "", *_change(mean_of_sets(sets)))])


def _change(test: Mapping[str, Mapping[str, float]] | None) -> tuple[str, str, str]:
    """Return the main measure of both models, and the change in points, as cells of a table."""
    if test is None:
        return ("", "", "")
    base, final = test["base"][PRIMARY], test["final"][PRIMARY]
    return in_points(base), in_points(final), points(final - base)


def print_next(screen: Screen, run: Run, grid: Path | None = None) -> None:
    """Print the commands that come next after a run, or for the best run of a grid."""
    commands, keywords = run.summary.next_commands(grid), run.record.keywords
    fuses = keywords is not None and any(keywords.weights.values())
    purposes = {
        "review": "decide which labels are wrong or missing, and train again",
        "show": "look at searches before and after",
        "search": "search with the final model" + " and BM25" * fuses,
        "report": "write a page: verdict, measures, queries that changed",
    }
    width = max(map(len, commands.values()))
    screen.heading("\nNext:")
    screen.commands(
        *(f"{command:{width}}  # {purposes[name]}" for name, command in commands.items())
    )


def how_to_use(run: Run) -> str:
    """Return the lines of Python that load the final model."""
    from opera.retrieval.locate import model_type_in

    if run.settings["query_vectors"] is not None:
        return (
            f"import adapter  # {run.model_path / 'adapter.py'}; copy it with adapter.npz\n"
            "queries = adapter.queries(vectors)"
        )
    model_class = model_type_in(run.model_path)
    index_note = "\n# document embeddings are unchanged: an existing index stays valid"
    return (
        f"from sentence_transformers import {model_class}\n"
        f"model = {model_class}({str(run.model_path)!r})\n"
        'embeddings = model.encode_query(["your question"])'
        + (index_note if run.settings["adapter"] == "query" else "")
    )


SHOWN = 3
"""Documents shown per search."""


def quickstart(
    out: Annotated[Path, path_option("--out", "folder to write")] = Path("quickstart"),
    method: Annotated[str, typer.Option("--method", help="method, as for opera train")] = "auto",
    seed: SeedOption = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace an earlier quickstart")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Teach all-MiniLM-L6-v2 to search the Python standard library: about 10 minutes on 2 cores."""
    check_folder(out / "run", "--out")  # importing torch fails if the current folder was deleted

    from opera.run.adapt import quickstart as run_quickstart

    with interruptible(lambda: "the same command with --overwrite starts again"):
        run = run_quickstart(out, method, seed, overwrite)
    show(as_json, run.summary.as_dict, partial(print_quickstart, run=run))


def print_quickstart(screen: Screen, run: Run) -> None:
    """Print searches with the base and the final model, the verdict, and next steps."""
    _print_searches(screen, run)
    screen.lines("")
    print_before_after(screen, run)
    screen.heading(f"\nThe model: {run.model_path}")
    screen.lines(how_to_use(run))
    print_next(screen, run)
    from opera.data.names import command_words

    opera = sys.argv[0] if Path(sys.argv[0]).name == "opera" else "opera"
    screen.heading("\nWith your own data:")
    screen.commands(
        shlex.join([opera, "inspect", *command_words(run.record.data.source), "--model", "minilm"]),
        shlex.join([opera, "train", "python:YOUR_PACKAGE", "--model", "minilm", "--out", "yours"]),
    )


def _print_searches(screen: Screen, run: Run) -> None:
    """Count the test queries that gained, lost and stayed. Print the query that gained most and the
    one that lost most, with the best documents of both models.
    """
    changed = run.review()["changed"]
    counts = ", ".join(f"{changed[kind]:,} {kind}" for kind in ("gained", "lost", "same"))
    screen.heading(f"\nHeld-out queries by {PRIMARY}: {counts}. The largest changes:")
    for query in (*changed["gains"][:1], *changed["losses"][:1]):
        change = f"{in_points(query['base'])} -> {in_points(query['final'])}"
        screen.heading(f"\n“{query['query']}” ({PRIMARY} {change})")
        for when in ("base", "final"):
            screen.heading(f"{when} (✓ belongs to the object)")
            for rank, document in enumerate(query[f"{when}_documents"][:SHOWN], start=1):
                mark = "✓" if document["labelled"] else " "
                screen.document(f"{mark} {rank}.  {flat(document['doc_id'])}", document["document"])
