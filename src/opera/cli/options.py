"""Options that several commands share, the functions that read them, and the screen.

The screen prints lines and tables. Markup in a text is printed literally.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from opera.config.training import TrainSettings, flag_of
from opera.config.yaml import parse_assignments, parse_scalar
from opera.core.arguments import MOST_SEED, expand_user, user_path
from opera.core.errors import SettingError
from opera.core.processes import several_processes
from opera.core.settings import leaves
from opera.core.terminal import json_text, printable, say, shown

if TYPE_CHECKING:
    from pathlib import Path

    from opera.data.names import DataName
    from opera.experiments.tables import ReportTable
    from opera.run_folder.record import NoisyLabelsRecord


def show(as_json: bool, record: Callable[[], Any], text: Callable[[Screen], None]) -> None:
    """Print the result of a command: its record with ``--json``, else its text."""
    if as_json:
        say(json_text(record()))
    else:
        text(Screen())


def parser_of(parse: Callable[..., Any], name: str) -> Callable[[str], Any]:
    """Return the parser of an option that takes a path; typer takes no ``partial``."""
    return lambda value: parse(value, name=name)


def path_option(name: str, help: str, **more: Any) -> Any:
    """Declare an option that takes a path."""
    return typer.Option(name, help=help, metavar="PATH", parser=parser_of(user_path, name), **more)


def source_option(name: str, help: str) -> Any:
    """Declare an option that takes a path or a name."""
    return typer.Option(name, help=help, metavar="PATH|NAME", parser=parser_of(expand_user, name))


def setting_option(name: str) -> Any:
    """Declare the option of a setting. It reads numbers as YAML; the settings check them."""
    field = TrainSettings.model_fields[name]
    kind = next((kind.__name__ for kind in (int, float) if kind in leaves(field.annotation)), "str")
    parser: Callable[[str], Any] = str if kind == "str" else parse_scalar
    return typer.Option(
        flag_of(name), help=f"{field.description} ({name})", metavar=f"<{kind}>", parser=parser
    )


DATA, SETTINGS = "Data", "Settings"
"""Groups of options."""
MODELS = "sentence-transformers folder or hub id, OPERA run, or 'minilm'"

_DATA = (
    "BEIR folder, table of pairs (CSV, TSV, JSONL, Parquet, Arrow), FlagEmbedding .jsonl file, "
    "example:faq, python:PACKAGE, irds:ID, or hf:OWNER/NAME; or give --pairs"
)
DataArgument = Annotated[str | None, typer.Argument(help=_DATA, metavar="DATA")]
RunOrData = Annotated[
    str | None,
    typer.Argument(
        help=f"an OPERA run, with its data and model; or, with --model, a {_DATA}",
        metavar="RUN|DATA",
    ),
]
AlsoOption = Annotated[
    list[str] | None,
    typer.Option(
        "--also",
        help="another data set, to train on all of them together; repeatable",
        metavar="DATA",
    ),
]
ModelOption = Annotated[str, source_option("--model", MODELS)]
OptionalModel = Annotated[str | None, source_option("--model", f"{MODELS}; auto: the run's model")]
Bm25Option = Annotated[
    bool | None,
    typer.Option(
        "--bm25/--no-bm25", help="measure keyword search too; default: up to 200,000 documents"
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="replace an existing output")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on standard output")]
RelevantOption = Annotated[
    int | None,
    typer.Option(
        "--relevant-grade",
        help="lowest grade that counts as relevant; auto: the run's, or 1",
        min=1,
    ),
]
FirstStageOption = Annotated[
    str | None,
    source_option(
        "--first-stage", f"what ranks all documents for a reranker: bm25 (default), or {MODELS}"
    ),
]
DepthOption = Annotated[
    int | None,
    typer.Option(
        "--depth", help="how many documents a reranker sorts per query; default: 100", min=1
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option("--max-length", help="most tokens of a pair for the reranker", min=8),
]
SeedOption = Annotated[int, typer.Option("--seed", help="random seed", min=0, max=MOST_SEED)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="any setting, as key=value; repeatable", rich_help_panel=SETTINGS),
]

EncodingOption = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        help="encoding of text files that are not UTF-8, such as cp1252",
        rich_help_panel=DATA,
    ),
]

SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="skip the rows of tables that break a rule, and list them",
        rich_help_panel=DATA,
    ),
]


ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        help="which columns to read: query=q,document=doc_id,weight=clicks",
        metavar="ROLE=COLUMN",
        rich_help_panel=DATA,
    ),
]


@dataclass(frozen=True)
class TableOptions:
    """The options of tables of a data set, and of how to read files."""

    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--pairs",
            help="table of pairs, or SPLIT=FILE; repeatable: CSV, TSV, JSONL, Parquet, Arrow, TREC "
            "qrels",
            metavar="FILE",
            rich_help_panel=DATA,
        ),
    ] = None
    documents: Annotated[
        str | None,
        typer.Option(
            "--documents",
            help="table of the documents whose ids are in --pairs",
            metavar="FILE",
            rich_help_panel=DATA,
        ),
    ] = None
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries",
            help="table of the queries whose ids are in --pairs",
            metavar="FILE",
            rich_help_panel=DATA,
        ),
    ] = None
    columns: ColumnsOption = None
    encoding: EncodingOption = None
    skip_bad_rows: SkipOption = False

    @property
    def reading(self) -> dict[str, Any]:
        """The options that also apply to lists of pairs."""
        return {"encoding": self.encoding, "skip_bad_rows": self.skip_bad_rows}

    def source(self, data: str | None, strict: bool = True) -> DataName:
        """Return the name of the data set ``data``, or the tables passed instead.

        Data that are not tables reject :attr:`reading` if ``strict``.
        """
        from opera.data.loading import named_source

        if data is not None:
            data = expand_user(data, "DATA")
        tables = {**vars(self), "pairs": self.pairs or None}
        return cast("DataName", named_source(data, **tables, strict=strict))


TrainerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trainer",
        help="a field of sentence-transformers' training arguments, as key=value; repeatable",
        rich_help_panel=SETTINGS,
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    source_option(
        "--config",
        "YAML recipe: a file, or the name of a recipe of OPERA; repeatable, later recipes win",
    ),
]


def with_options(*settings: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command that takes ``tables: TableOptions`` and settings by name, such as
    ``**encoding``. The command line then has an option for each field and each of these settings.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared = [*_parameters(TableOptions), *map(_option_of, settings)]
        options = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in [*_parameters(command), *shared]
            if parameter.name != "tables" and parameter.kind is not Parameter.VAR_KEYWORD
        ]

        @functools.wraps(command)
        def command_with_options(**values: Any) -> None:
            tables = {field.name: values.pop(field.name) for field in fields(TableOptions)}
            command(tables=TableOptions(**tables), **values)

        command_with_options.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        command_with_options.__annotations__ = {
            option.name: option.annotation for option in options
        }
        return command_with_options

    return decorate


def _parameters(function: Callable[..., Any]) -> Iterable[Parameter]:
    return inspect.signature(function, eval_str=True).parameters.values()


def _option_of(name: str) -> Parameter:
    """The parameter of a command for a setting. It is repeatable for several texts."""
    kinds = leaves(TrainSettings.model_fields[name].annotation)
    kind: Any = list[str] if tuple[str, ...] in kinds else str
    annotation = Annotated[kind | None, setting_option(name)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def collect_values(
    config: list[str] | None,
    assignments: list[str] | None,
    trainer: list[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Merge the settings of a command: recipes in their order, then ``--set``, then options.

    Raises:
        SettingError: for a recipe that cannot be read, or a setting passed by ``--set`` and by its
            option.
    """
    from opera.config.recipe import (
        ADAPT_ARGUMENTS,
        override,
        recipe,
        unknown_name,
        with_full_names,
    )
    from opera.methods import AUTO

    by_option = {name: value for name, value in options.items() if value not in (None, [])}
    if trainer:
        by_option["trainer"] = parse_assignments(trainer, "--trainer", "adam_beta2=0.98")
    by_set = with_full_names(parse_assignments(assignments or []))
    if arguments := [name for name in by_set if name in ADAPT_ARGUMENTS]:
        raise SettingError(*(unknown_name(name, ()) for name in arguments))
    if twice := by_option.keys() & by_set.keys():
        raise SettingError(f"given twice, by option and by --set: {', '.join(sorted(twice))}")
    values = {**by_set, **by_option}
    method = str(values.get("method") or recipe(*config or []).get("method", AUTO))
    methods = [label.partition(":")[0] for label in listed(method)]
    return override(recipe(*config or [], methods=methods), values)


def listed(text: str | None) -> list[str]:
    """Split an option at its commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def numbers(name: str, text: str | None, example: str = "0,1,2") -> list[int] | None:
    """Read whole numbers separated by commas; ``None`` stays.

    Raises:
        SettingError: with the option ``--name`` and an example.
    """
    if text is None:
        return None
    parts = listed(text)
    if bad := [part for part in parts if not re.fullmatch(r"[0-9]{1,10}", part)]:
        raise SettingError(
            f"--{name}: must be whole numbers separated by commas, such as {example}, got "
            f"{shown(bad[0])}"
        )
    return [int(part) for part in parts]


def is_main_process() -> bool:
    """Whether this process prints results: it is the only one, or torchrun's first."""
    return not several_processes() or os.environ.get("RANK", "0") == "0"


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into advice on how to continue, and exit status 130."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nopera: interrupted; {advice()}", file=sys.stderr)
        raise typer.Exit(130) from None


NO_LIMIT = 10_000
"""Characters of a line that is not shown on a terminal, so that no name is folded."""


class Screen:
    """Prints results. It escapes every text, so only the caller sets styles.

    Args:
        file: standard output by default.
        width: characters of a line; by default the terminal's width. Without a terminal, lines and
            tables are as wide as their contents.
    """

    def __init__(self, file: TextIO | None = None, width: int | None = None) -> None:
        from rich.console import Console

        self._most = None
        if width is None and not (file or sys.stdout).isatty():
            width, self._most = NO_LIMIT, max(120, shutil.get_terminal_size().columns)
        self._console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)

    def lines(self, *lines: str | None, style: str = "", **options: Any) -> None:
        """Print lines, leaving out those that are ``None``."""
        for line in lines:
            if line is not None:
                self._console.print(printable(line), style=style, **options)

    def commands(self, *commands: str) -> None:
        """Print commands, each on one line however long it is, so that one can paste it."""
        self.lines(*(f"  {command}" for command in commands), soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print a line in bold."""
        self.lines(text, style="bold")

    def cut(self, *lines: str, style: str = "") -> None:
        """Print lines, cut at the width of the screen, or at 120 characters without a terminal."""
        self.lines(*lines, style=style, overflow="ellipsis", no_wrap=True, width=self._most)

    def document(self, head: str, text: str) -> None:
        """Print a heading and a document's text, each cut to one line."""
        self.cut(head)
        self.cut(f"       {flat(text)}", style="dim")

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        words: int = 1,
        **look: Any,
    ) -> None:
        """Print a table.

        Args:
            columns: the headings.
            rows: the cells of each row.
            words: how many of the first columns hold text; the numbers after them align right.
            look: arguments of rich's ``Table``.
        """
        from rich.table import Table
        from rich.text import Text

        table = Table(**look)
        for number, column in enumerate(columns):
            table.add_column(
                Text(printable(column)),
                justify="left" if number < words else "right",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._console.print(table)

    def report_table(self, table: ReportTable) -> None:
        """Print a table of a report. It is narrow, since only its headings have a line."""
        from rich import box

        self.lines(table.caption, style="dim")
        self.table(
            table.columns,
            [[row.get(name, "") for name in table.columns] for row in table.rows],
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )


def flat(text: str) -> str:
    """Put corpus text on one line, without its control characters."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in text).split())


def list_sentence(estimate: NoisyLabelsRecord, folder: Path) -> str:
    """Say how many training pairs look wrong, and which file lists them, without the full stop."""
    from opera.run_folder.folder import SUSPICIOUS_FILE
    from opera.run_folder.summary import labels_sentence

    pair_list = f"{folder / SUSPICIOUS_FILE} lists {estimate.suspicious:,}, the worst first"
    return f"{labels_sentence(estimate)}; {pair_list}"
