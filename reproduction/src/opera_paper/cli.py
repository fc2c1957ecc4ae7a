"""The command ``opera-paper``: prints the results of the other modules."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Column, Table

import opera
from opera.data import check_stays_out, counts_in_words, with_relevant_grade
from opera_paper import align, reproduce
from opera_paper.catalogue import PAPER_SETS, find_set
from opera_paper.noise import NEEDS, WRONG_PAIRS, add_wrong_pairs, write_noisy
from opera_paper.plan import Reproduction
from opera_paper.tables import TABLES, PaperTable, find_table, our_measure
from opera_paper.theory import AUCS, NOISES, SimulationSettings, as_records, as_table, grid

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
AT_ONCE, AT_ONCE_WITH_OURS = 9, 3
"""Number of measures per printed table: the paper's alone, and with ours."""
FILE_WIDTH, NO_LIMIT = 160, 10_000
"""Characters of a line in a file of results, and in a pipe."""

JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]


@app.callback()
def _about() -> None:
    """Reproduce the tables of the OPERA paper (COLM 2026)."""


@app.command(name="table", epilog="Example: opera-paper table main")
def table_(
    name: Annotated[str | None, typer.Argument(help="name of a table; omit it to list all tables")] = None,
    data: Annotated[str | None, typer.Option("--data", help="only this data set")] = None,
    json_: JsonOption = False,
) -> None:
    """Print a table of the paper, or list all of them."""
    if name is None:
        listing = [{"table": t.name, "number": t.number, "what": t.what} for t in TABLES]
        _print(listing, _rich_table(listing), json_)
        return
    table = find_table(name)
    rows = align.paper_alone(align.rows_of(table, data))
    if json_:
        _print_json(align.as_records(table, rows, with_grid=False))
    else:
        print_table(_console(), table, rows, None, [])


@app.command(name="data", epilog="Example: opera-paper data nfcorpus")
def data_(
    name: Annotated[str | None, typer.Argument(help="fetch this data set; omit to list all")] = None,
    json_: JsonOption = False,
) -> None:
    """List the paper's data sets, or fetch one and compare its counts with Table 8."""
    if name is not None:
        entry = find_set(name)
        loaded = opera.load_data(entry.source)
        counts = with_relevant_grade(loaded, entry.relevant_grade).counts()
        note = entry.count_note(loaded) or "all counts match Table 8"
        record = {"source": entry.source, "counts": counts, "note": note}
        _print(record, f"{entry.source}: {counts_in_words(counts)}\n{note}", json_)
        return
    records = [
        {
            "name": entry.name,
            "in the paper": entry.title,
            **entry.table_counts,
            "to fetch": decimal(entry.download_bytes) if entry.download_bytes else "on request",
            "licence": entry.licence,
        }
        for entry in PAPER_SETS.values()
    ]
    _print(records, _rich_table(records), json_)


@app.command(
    name="reproduce",
    epilog="Example: opera-paper reproduce main --scale small --data nfcorpus=my-beir-folder",
)
def reproduce_(
    name: Annotated[str, typer.Argument(help="the name of a table, see opera-paper table", metavar="TABLE")],
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="only this data set; NAME=FOLDER reads your copy; repeatable"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="default reproduce-TABLE")] = None,
    scale: Annotated[str, typer.Option("--scale", help="full, or small: MiniLM and few steps")] = "full",
    model: Annotated[str | None, typer.Option("--model", help="base model; default the table's")] = None,
    methods: Annotated[str | None, typer.Option("--methods", help="only these methods of the table: ft,dp")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="default 0,1,2, or 0 if small")] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="paper, or release: settings of the authors' release")
    ] = "paper",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting of all runs: key=value; repeatable")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many runs to train at once")] = 1,
    plan: Annotated[bool, typer.Option("--plan", help="print the equivalent opera commands, then exit")] = False,
    table_only: Annotated[bool, typer.Option("--table-only", help="train nothing; compare the finished runs")] = False,
    json_: JsonOption = False,
) -> None:
    """Train the runs of a table of the paper, and print our figures next to the paper's.

    Finished runs are not repeated, so the same command continues.
    """
    table = find_table(name)
    planned = Reproduction(
        table=table,
        out=out or Path(f"reproduce-{table.name}{'' if scale == 'full' else f'-{scale}'}"),
        scale=scale,
        user_model=model,
        preset=preset,
        only_methods=None if methods is None else tuple(_listed(methods)),
        user_seeds=None if seeds is None else tuple(_seeds(seeds)),
        user_settings=dict(_assignment(text) for text in set_ or []),
        user_data=None if data is None else [word for text in data for word in _words(text)],
    )
    if plan:
        runs = sum(len(call.methods) for call in planned.calls) * len(planned.seeds)
        hours = planned.hours_on_a100s
        record = {"commands": planned.commands(), "runs": runs, "hours_on_eight_a100s": hours}
        summary = f"{runs:,} runs; add --plan to a command for its time on this machine"
        if not planned.small:
            summary += f"; about {hours:,.0f} hours of training on eight A100s (Table 5)"
        _print(record, "\n".join([*planned.commands(), summary]), json_)
        return
    failed: list[str] = []
    if not table_only:
        for note in reproduce.check_data(planned):
            print(f"note: {note}", file=sys.stderr)
        failed = reproduce.run_reproduction(planned, jobs)
    results = reproduce.collect_results(planned)
    text = StringIO()
    _print_results(Console(file=text, width=FILE_WIDTH), results)
    paths = reproduce.write_results(results, text.getvalue())
    if json_:
        _print_json(results.as_dict())
    else:
        _print_results(_console(), results)
        print("\n".join(map(str, paths)))
    if failed:
        print("opera-paper: error:", "\n".join(failed), file=sys.stderr)
        sys.exit(1)


@app.command(name="noise", epilog="Example: opera-paper noise my-data --share 0.3 --kind random --out noisy")
def noise_(
    data: Annotated[str, typer.Argument(help="a data set, as for opera train", metavar="DATA")],
    kind: Annotated[str, typer.Option("--kind", help=", ".join(NEEDS))],
    out: Annotated[Path, typer.Option("--out", help="a new folder", metavar="FOLDER")],
    share: Annotated[float | None, typer.Option("--share", help="noise rate, 0 to 1")] = None,
    model: Annotated[str | None, typer.Option("--model", help="model that ranks documents for hard and clicks")] = None,
    grade: Annotated[int | None, typer.Option("--grade", help="for kind grade: lowest grade of a wrong pair")] = None,
    relevant_grade: Annotated[
        int | None,
        typer.Option("--relevant-grade", min=1, help="lowest relevant grade; default 1, or one above --grade"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="random seed")] = 0,
) -> None:
    """Add wrong pairs to train and dev, and write the data as a BEIR folder."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise opera.RunFolderError(f"--out {out}: is not an empty folder; pass a new folder")
    check_stays_out(out, "--out", data)
    noisy, wrong = add_wrong_pairs(
        opera.load_data(data), kind, share, seed, model=model, grade=grade, relevant_grade=relevant_grade
    )
    write_noisy(noisy, wrong, out)
    print(*noisy.notes, f"{out / WRONG_PAIRS} lists the wrong pairs; next:", sep="\n")
    command = ["opera", "train", str(out), "--model", str(model or "MODEL"), "--out", "run"]
    print(f"  {shlex.join(command)}")


@app.command(epilog="Example: opera-paper theory --noise 0.2 --noise 0.4 --auc 0.7 --set k=0.5")
def theory(
    noise: Annotated[list[float] | None, typer.Option("--noise", help="noise rates of the table; repeatable")] = None,
    auc: Annotated[list[float] | None, typer.Option("--auc", help="scoring qualities of the table; repeatable")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="k, v, beta, angle, documents, repeats, dimension, concentration, as key=value",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="random seed")] = 0,
    json_: JsonOption = False,
) -> None:
    """When does pruning help? Compare Theorem 1 with a simulation of OPERA's methods."""
    values = dict(_assignment(text) for text in set_ or [])
    for name in values.keys() & {"noise", "auc", "seed"}:
        raise opera.SettingError(f"--set {name}: use the option --{name}")
    settings = SimulationSettings.parse({**values, "seed": seed})
    points = grid(settings, noise or NOISES, auc or AUCS)
    _print({"points": as_records(points)}, as_table(points), json_)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _words(text: str) -> list[str]:
    return [text] if "=" in text else _listed(text)


def _seeds(text: str) -> list[int]:
    if not all(part.isdecimal() for part in _listed(text)) or not _listed(text):
        raise opera.SettingError(f"--seeds: must be whole numbers such as 0,1,2, got {text!r}")
    return [int(part) for part in _listed(text)]


def _assignment(text: str) -> tuple[str, Any]:
    """Parse ``key=value``; a value that is valid JSON is read as JSON."""
    name, equals, value = text.partition("=")
    if not equals:
        raise opera.SettingError(f"--set {text}: must be key=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _print_results(console: Console, results: reproduce.Reproduced) -> None:
    plan = results.plan
    print_table(console, plan.table, results.rows, Path(plan.model).name, results.notes)


def print_table(
    console: Console,
    table: PaperTable,
    rows: Sequence[align.ComparedRow],
    model: str | None,
    notes: Sequence[str],
) -> None:
    """Print a table of the paper, with our figures if ``model`` is the name of our model."""
    console.print(f"{table.number}: {table.what}", style="bold")
    console.print(f"the paper: {table.model}" + (f"; ours: {model}" if model else ""))
    measures = list(dict.fromkeys(name for row in rows for name in row.figures))
    at_once = AT_ONCE_WITH_OURS if model else AT_ONCE
    for start in range(0, len(measures), at_once):
        block = measures[start : start + at_once]
        heads = ["data", "queries", "method", "steps"]
        for name in block:
            unit = "points" if our_measure(name) else "difference"
            heads += [f"{name}\npaper", "\nours", f"\n{unit}"] if model else [name]
        lines = []
        for row in rows:
            steps = row.row.steps if row.steps is None else row.steps
            line = [row.row.data, row.row.part, row.row.method, f"{steps:,}" if steps else ""]
            for name in block:
                line += _figures(row.figures.get(name), name, with_ours=bool(model))
            lines.append(line)
        used = [i for i in range(len(heads)) if i >= 4 or any(line[i] for line in lines)]
        grid = _grid([heads[i] for i in used])
        for line in lines:
            grid.add_row(*(line[i] for i in used))
        console.print(grid)
    sets = {row.row.data for row in rows}
    data_notes = [note for data, note in table.data_notes.items() if data in sets]
    for note in [*data_notes, *table.notes, *notes]:
        console.print(note)


def _figures(figure: align.ComparedFigure | None, name: str, with_ours: bool) -> list[str]:
    """The paper's figure; ``with_ours`` adds our mean ± standard deviation and the difference."""
    if figure is None:
        return [""] * (3 if with_ours else 1)
    cells = [_number(figure.paper, name)]
    if with_ours:
        ours = figure.missing if figure.mean is None else _number(figure.mean, name)
        spread = "" if figure.sd is None else f" ± {_number(figure.sd, name)}"
        difference = figure.difference
        cells += [ours + spread, "" if difference is None else f"{difference:+.1f}"]
    return cells


def _number(value: float | None, name: str) -> str:
    if value is None:
        return "–"
    if name == "queries":
        return f"{value:g}"
    return f"{value:.{3 if our_measure(name) and abs(value) < 1 else 2}f}"


def _grid(heads: Sequence[str]) -> Table:
    """Return a table that folds long cells: a name that one has to type is never cut."""
    return Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False)


def _console() -> Console:
    """Return the console. In a pipe, lines are as wide as their contents."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else NO_LIMIT)


def _rich_table(records: Sequence[dict[str, Any]]) -> Table:
    grid = _grid([name.replace("_", " ") for name in records[0]])
    for record in records:
        shown = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in record.values())
        grid.add_row(*shown)
    return grid


def _print(record: Any, text: str | Table, as_json: bool) -> None:
    if as_json:
        _print_json(record)
    elif isinstance(text, str):
        print(text)
    else:
        _console().print(text)


def _print_json(record: Any) -> None:
    print(json.dumps(record, indent=2, ensure_ascii=False))


def main() -> None:
    """Run the command line; invalid input causes one message and exit status 2."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    try:
        app(prog_name="opera-paper")
    except opera.OperaError as error:
        print("opera-paper: error:", "\n".join(error.lines), file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print("\nopera-paper: interrupted; the same command continues", file=sys.stderr)
        sys.exit(130)
