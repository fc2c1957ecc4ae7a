"""The command line. Exit status: 0 done, 2 wrong input (one message, no traceback), 1 broken off, 130 interrupted."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.errors import OperaError, SettingError

if TYPE_CHECKING:
    from opera.runs import Run

app = typer.Typer(
    help="Adapt a dense retriever to your own data (OPERA, COLM 2026).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DataArgument = Annotated[
    str, typer.Argument(help="BEIR folder, FlagEmbedding .jsonl file, or python:PACKAGE", metavar="DATA")
]
ModelArgument = Annotated[
    str,
    typer.Argument(help="sentence-transformers folder or hub id, OPERA run, or 'minilm'", metavar="MODEL"),
]
ModelOption = Annotated[
    str, typer.Option("--model", help="sentence-transformers folder or hub id, OPERA run, or 'minilm'")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on standard output")]
SeedOption = Annotated[int, typer.Option("--seed", help="of every random draw", min=0)]


def main() -> None:
    """Run the command line; this is what ``opera`` calls."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_TqdmHandler()])
    logging.getLogger("opera").setLevel(logging.INFO if _speaks() else logging.WARNING)
    try:
        app()
    except OperaError as error:
        who = "opera" if _speaks() else f"opera, process {os.environ['RANK']}"
        print(f"{who}: error: {error}\n", end="", file=sys.stderr, flush=True)
        sys.exit(error.exit_status)
    except RuntimeError as error:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and any(word in str(error) for word in LOST_PROCESS):
            print(f"opera, process {os.environ['RANK']}: another process ended; see its message", file=sys.stderr)
            sys.exit(1)
        raise
    finally:
        _leave_processes()


LOST_PROCESS = ("Connection closed by peer", "Connection reset", "Broken pipe", "NCCL")


def _leave_processes() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


def _speaks() -> bool:
    """Whether this is the one process of several, started by torchrun, that prints results."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into a sentence that says how to go on, and exit status 130."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nopera: interrupted; {advice()}", file=sys.stderr)
        raise typer.Exit(130) from None


def _how_to_go_on(out: Path, started: float) -> str:
    from opera.runs import last_whole_checkpoint, run_began_after

    if not run_began_after(out, started):
        return "nothing was written yet: the same command starts again"
    step = last_whole_checkpoint(out)
    if step is None:
        return "no checkpoint was saved yet: the same command with --resume, without --overwrite, starts from step 0"
    return f"the same command with --resume, without --overwrite, goes on from step {step}"


class _TqdmHandler(logging.Handler):
    """Prints log lines above the progress bars, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm.auto import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


def _print_settings(asked: bool) -> None:
    if not asked:
        return
    from rich.table import Table

    from opera.config import all_docs
    from opera.show import console

    for group, docs in all_docs().items():
        table = Table(title=f"{group}: --set NAME=VALUE, or NAME: VALUE in --config", title_justify="left")
        for column in ("name", "kind", "default", "what it does", "default's source"):
            table.add_column(column, overflow="fold", no_wrap=column == "name")
        for doc in docs:
            table.add_row(doc.name, doc.kind, doc.default, doc.help, doc.source)
        console().print(table, soft_wrap=False)
    raise typer.Exit


@app.command(
    epilog="Example: opera train my-beir-folder --model minilm --method dp --out run --steps 500 --set temperature=0.05"
)
def train(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="run folder to write")],
    method: Annotated[
        str | None, typer.Option("--method", help="ft, rp, sp, sp+cbs, infobatch, dp (the default) or sp+dp")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="optimizer steps (max_steps)")] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="queries a step (per_device_train_batch_size)")
    ] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="peak learning rate (learning_rate)")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="of every random draw")] = None,
    negatives: Annotated[str | None, typer.Option("--negatives", help="random, hard or given")] = None,
    range_: Annotated[str | None, typer.Option("--range", help="ranks LO:HI of hard negatives")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="any setting, as key=value; repeatable")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML recipe of settings")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the run in --out")] = False,
    json_: JsonOption = False,
    help_settings: Annotated[
        bool,
        typer.Option("--help-settings", help="list every setting and exit", is_eager=True, callback=_print_settings),
    ] = False,
) -> None:
    """Adapt a model to a data set, and measure it before and after on the test split."""
    from opera.config import make_recipe, parse_assignments, read_recipe
    from opera.data import load_data
    from opera.runs import check_out_folder

    flags = {
        "method": method,
        "max_steps": steps,
        "per_device_train_batch_size": batch_size,
        "learning_rate": lr,
        "seed": seed,
        "negatives": negatives,
        "range": range_,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    assigned = parse_assignments(set_ or [])
    if twice := given.keys() & assigned.keys():
        raise SettingError(f"given twice, by its own option and by --set: {', '.join(sorted(twice))}")
    values = {**(read_recipe(config) if config else {}), **assigned, **given}

    make_recipe(values)
    check_out_folder(out, resume, overwrite)
    loaded = load_data(data)  # mistakes are told before torch is loaded, which takes seconds

    from opera.adaptation import adapt

    started = time.time()
    with _interruptible(lambda: _how_to_go_on(out, started)):
        run = adapt(loaded, model=model, out=out, resume=resume, overwrite=overwrite, **values)
    if _speaks():
        _report(run, json_)


@app.command(epilog="Example: opera evaluate run my-beir-folder --split test --json")
def evaluate(
    model: ModelArgument,
    data: DataArgument,
    split: Annotated[str, typer.Option("--split", help="which judgements to use")] = "test",
    measures: Annotated[str | None, typer.Option("--measures", help="comma-separated, such as nDCG@10,R@100")] = None,
    full: Annotated[bool, typer.Option("--full", help="all measures at 1, 5, 10, 20, 50 and 100")] = False,
    relevant_grade: Annotated[
        int | None,
        typer.Option("--relevant-grade", help="lowest score that counts as relevant; auto: a run's own, or 1", min=1),
    ] = None,
    run_file: Annotated[Path | None, typer.Option("--run-file", help="also write the ranking as a TREC run")] = None,
    json_: JsonOption = False,
) -> None:
    """Measure a model on a split of a data set."""
    from opera.data import load_data
    from opera.measures import DEFAULT_MEASURES, FULL_MEASURES, check_measures

    names = tuple(measures.split(",")) if measures else FULL_MEASURES if full else DEFAULT_MEASURES
    check_measures(names)
    loaded = load_data(data)

    from opera.api import evaluate as evaluate_model
    from opera.files import check_suffix
    from opera.outputs import write_trec_run
    from opera.show import console, print_measures

    if run_file:
        check_suffix(run_file, (".trec", ".run", ".txt"))
    result = evaluate_model(model, loaded, split, names, relevant_grade=relevant_grade)
    if run_file:
        write_trec_run(run_file, result, loaded)
    if json_:
        facts = {"model": model, "data": data, "split": split, "queries": len(result.query_ids)}
        print(json.dumps({**facts, "measures": result.measures}, indent=2))
    else:
        print_measures(console(), result.measures, f"{model} on {data}, {split}: {len(result.query_ids)} queries")


@app.command(epilog="Example: opera score my-beir-folder --model minilm --out pairs.parquet")
def score(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="file to write: .parquet, .tsv or .jsonl")],
    cbs: Annotated[bool, typer.Option("--cbs", help="also rank each pair among random documents (CBS)")] = False,
    cbs_pool: Annotated[
        int | None, typer.Option("--cbs-pool", help="how many random documents; default 10,000", min=1)
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Write the pretrained similarity and stand-in loss of every training pair: what SP ranks by and DP starts from."""
    from opera.methods.static import CBS_POOL
    from opera.outputs import score_pairs
    from opera.show import console, print_measures

    if cbs_pool and not cbs:
        raise SettingError("--cbs-pool: needs --cbs")
    summary, note = score_pairs(data, model, out, seed, (cbs_pool or CBS_POOL) if cbs else 0)
    print_measures(console(), summary, f"similarity of {data}'s training pairs; {out} has them all")
    if note:
        print(note)


@app.command(epilog="Example: opera mine my-beir-folder --model minilm --range 10:100 --out mined.jsonl")
def mine(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="file to write: .jsonl (FlagEmbedding) or .tsv (ids)")],
    range_: Annotated[str, typer.Option("--range", help="ranks LO:HI to take negatives from")] = "10:100",
    keep: Annotated[int, typer.Option("--keep", help="most negatives a query", min=1)] = 15,
    seed: SeedOption = 0,
) -> None:
    """Mine hard negatives for the training queries; the .jsonl trains with this and with FlagEmbedding."""
    from opera.outputs import mine_negatives

    count = mine_negatives(data, model, out, range_, keep, seed)
    print(f"{out}: {count:,} negatives")


@app.command(epilog='Example: opera search run my-beir-folder "does garlic lower cholesterol" --top 5')
def search(
    model: ModelArgument,
    data: DataArgument,
    query: Annotated[str, typer.Argument(help="what to look for")],
    top: Annotated[int, typer.Option("--top", help="how many documents", min=1)] = 5,
    json_: JsonOption = False,
) -> None:
    """Search a corpus with a model."""
    from opera.data import load_data
    from opera.errors import DataError

    if not query.strip():
        raise DataError("query: must not be empty")
    loaded = load_data(data)

    from opera.api import open_encoder, text_choice
    from opera.evaluation import found_documents
    from opera.show import console, print_found

    found = found_documents(open_encoder(model), loaded, query, top, text_choice(model))
    if json_:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print_found(console(), found, f"“{query}” in {data}")


@app.command(epilog="Example: opera inspect my-beir-folder --model minilm")
def inspect(
    data: DataArgument,
    model: ModelOption,
    show: Annotated[int, typer.Option("--show", help="how many suspicious pairs to show", min=0)] = 10,
    relevant_grade: Annotated[
        int, typer.Option("--relevant-grade", help="lowest score that counts as relevant", min=1)
    ] = 1,
    seed: SeedOption = 0,
    json_: JsonOption = False,
) -> None:
    """Look at a data set before training: sizes, noise, duplicates, leaks, suspicious pairs, and what method to use."""
    from opera.data import load_data

    loaded = load_data(data)
    loaded.training_split()

    from opera.inspection import inspect as inspect_data
    from opera.inspection import print_inspection
    from opera.show import console

    seen = inspect_data(loaded, model, show=show, seed=seed, relevant_grade=relevant_grade)
    if json_:
        print(json.dumps(seen.as_dict(), indent=2, ensure_ascii=False))
    else:
        print_inspection(console(), seen)


@app.command(epilog="Example: opera theory --noise 0.2 --noise 0.4 --auc 0.7 --set k=0.5 --out theory.svg")
def theory(
    noise: Annotated[list[float] | None, typer.Option("--noise", help="noise rates of the table; repeatable")] = None,
    auc: Annotated[list[float] | None, typer.Option("--auc", help="scoring qualities of the table; repeatable")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="k, v, beta, angle, documents, repeats, dimension, concentration, as key=value"),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="chart to write: .svg, .png or .pdf")] = Path("theory.svg"),
    seed: SeedOption = 0,
    json_: JsonOption = False,
) -> None:
    """When does pruning help? Theorem 1 beside a simulation with the shipped methods, as a table and a chart."""
    from opera.charts import FORMATS, write_theory_chart
    from opera.config import parse_assignments
    from opera.files import check_suffix
    from opera.show import console, print_theory
    from opera.theory import AUCS, NOISES, World, as_records, grid, sweeps

    check_suffix(out, FORMATS)
    noises, aucs = noise or NOISES, auc or AUCS
    base = {"noise": noises[len(noises) // 2], "auc": aucs[-1], "seed": seed}
    assigned = parse_assignments(set_ or [])
    if twice := base.keys() & assigned.keys():
        raise SettingError(f"has an option of its own, --{twice.pop()}: leave it out of --set")
    world = World.parse({**base, **assigned})
    points = grid(world, noises, aucs)
    held = ", ".join(f"{name} = {getattr(world, name):g}" for name in ("k", "v", "beta", "angle", "documents"))
    write_theory_chart(out, sweeps(world), f"noise = {world.noise:g}, AUC = {world.auc:g}, {held}")
    if json_:
        print(json.dumps({"chart": str(out), "points": as_records(points)}, indent=2))
        return
    print_theory(console(), points, held)
    print(f"\n{out}: the gain over ft by noise rate, scoring quality, share selected and β")


@app.command(epilog="Example: opera quickstart --out quickstart")
def quickstart(
    out: Annotated[Path, typer.Option("--out", help="folder to write")] = Path("quickstart"),
    method: Annotated[str, typer.Option("--method", help="as for opera train")] = "dp",
    seed: SeedOption = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace an earlier quickstart")] = False,
) -> None:
    """Teach all-MiniLM-L6-v2 to search the Python standard library: about 4 minutes on 2 cores."""
    from opera.quickstart import quickstart as run_quickstart
    from opera.quickstart import show
    from opera.show import console

    with _interruptible(lambda: "the same command with --overwrite starts again"):
        run = run_quickstart(out, method, seed, overwrite)
    show(run, console())


def _report(run: Run, as_json: bool) -> None:
    from rich.text import Text

    from opera.show import console, how_to_load, print_before_after

    if as_json:
        print(json.dumps({"run": str(run.path), "measures": run.measures}, indent=2))
        return
    settings, screen = run.settings, console()
    masked = str(settings["mask_known_positives"]).lower()
    queries = run.per_query().num_rows
    title = f"{settings['method']}, {run.steps} steps, mask_known_positives={masked}; {queries} test queries"
    print_before_after(screen, run.measures, title)
    if run.measures["after"]["nDCG@10"] < run.measures["before"]["nDCG@10"]:
        screen.print("nDCG@10 fell: try fewer --steps, a lower --lr, --set temperature=0.05, or --method ft")
    screen.print(Text(f"\n{how_to_load(str(run.model_path))}"))
