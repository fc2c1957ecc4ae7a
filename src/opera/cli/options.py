"""Options that several commands share, what is made of them, and how commands stop."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from opera.cli.screen import Screen
from opera.config.training import FLAGS, TrainSettings
from opera.config.yaml import parse_assignments
from opera.core.arguments import MOST, MOST_SEED
from opera.core.errors import SettingError
from opera.core.paths import expand_user, user_path
from opera.core.settings import leaves
from opera.core.terminal import json_text, say, shown

if TYPE_CHECKING:
    from opera.data import RetrievalData
    from opera.experiments.grid.run import Status


log = logging.getLogger("opera")


@dataclass(frozen=True)
class Made:
    """Marks a parameter of a command whose value a function makes of options of its own.

    Attributes:
        by: the function; its parameters are options of the command.
    """

    by: Callable[..., Any]

    @property
    def options(self) -> list[Parameter]:
        """The options that it takes."""
        return list(signature(self.by, eval_str=True).parameters.values())


@dataclass(frozen=True)
class Answer:
    """What a command found out: ``--json`` prints the record, else the text is printed.

    Attributes:
        record: returns what is printed as JSON.
        text: prints the text.
        status: how the command ends.
    """

    record: Callable[[], Any]
    text: Callable[[Screen], None]
    status: int = 0


def with_options(command: Callable[..., Answer | Iterator[Answer] | None]) -> Callable[..., None]:
    """Give a command, in place of the parameters marked :class:`Made`, the options they take, and
    ``--json`` if it returns an :class:`Answer`, or several one by one.
    """
    given = signature(command, eval_str=True).parameters.values()
    made = {
        each.name: mark
        for each in given
        for mark in get_args(each.annotation)
        if isinstance(mark, Made)
    }
    options = [
        option
        for each in given
        for option in (made[each.name].options if each.name in made else [each])
    ]

    if "Answer" in str(signature(command).return_annotation):
        options.append(Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=JSON))

    def run(json: bool = False, **values: Any) -> None:
        for name, mark in made.items():
            values[name] = mark.by(**{each.name: values.pop(each.name) for each in mark.options})
        found = command(**values)
        for answer in [found] if isinstance(found, Answer) else found or ():
            if json:
                say(json_text(answer.record()))
            else:
                answer.text(Screen())
            if answer.status:
                raise typer.Exit(answer.status)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]
    )
    return run


def parser_of(parse: Callable[..., Any], name: str) -> Callable[[str], Any]:
    """Return the parser of an option that takes a path; typer takes no ``partial``."""
    return lambda value: parse(value, name=name)


def path_option(name: str, help: str, **more: Any) -> Any:
    """Declare an option that takes a path."""
    return typer.Option(name, help=help, metavar="PATH", parser=parser_of(user_path, name), **more)


def source_option(name: str, help: str) -> Any:
    """Declare an option that takes a path or a name."""
    return typer.Option(name, help=help, metavar="PATH|NAME", parser=parser_of(expand_user, name))


MODELS = "sentence-transformers folder or hub id, OPERA run, or 'minilm'"

_DATA = (
    "BEIR folder, table of pairs (CSV, TSV, JSONL, Parquet, Arrow), FlagEmbedding .jsonl file, "
    "example:faq, python:PACKAGE, irds:ID, or hf:OWNER/NAME; or give --pairs"
)
DataArgument = Annotated[str | None, typer.Argument(help=_DATA, metavar="DATA")]
RunOrData = Annotated[
    str | None,
    typer.Argument(
        help=f"an OPERA run alone, which knows its data and its model; or with --model a {_DATA}",
        metavar="RUN|DATA",
    ),
]
ModelOption = Annotated[str, source_option("--model", MODELS)]
OptionalModel = Annotated[str | None, source_option("--model", f"{MODELS}; auto: the run's own")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="replace the file if it exists")]
JSON = Annotated[bool, typer.Option("--json", help="print JSON on standard output")]
RelevantOption = Annotated[
    int,
    typer.Option("--relevant-grade", help="lowest grade that counts as relevant", min=1, max=MOST),
]
SeedOption = Annotated[
    int, typer.Option("--seed", help="seed of every random draw", min=0, max=MOST_SEED)
]
IndexOption = Annotated[
    str,
    typer.Option(
        "--index", help="how to search: exact, or approximately by FAISS (extra faiss): hnsw, ivf"
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="any setting, as key=value; repeatable")
]

EncodingOption = Annotated[
    str | None,
    typer.Option("--encoding", help="encoding of text files that are not UTF-8, such as cp1252"),
]

SkipOption = Annotated[
    bool,
    typer.Option("--skip-bad-rows", help="leave out and list the rows of tables that break a rule"),
]


def tables(
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--pairs",
            help="table of pairs, or SPLIT=FILE; repeatable: CSV, TSV, JSONL, Parquet, Arrow, TREC "
            "qrels",
            metavar="FILE",
        ),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            "--documents", help="table of the documents whose ids are in --pairs", metavar="FILE"
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries", help="table of the queries whose ids are in --pairs", metavar="FILE"
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            help="which columns to read: query=q,document=doc_id,weight=clicks",
            metavar="ROLE=COLUMN",
        ),
    ] = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
) -> partial[str]:
    """Return :func:`one_source` of these tables; it takes DATA."""
    given: dict[str, Any] = {"pairs": pairs or (), "documents": documents, "queries": queries}
    how: dict[str, Any] = {"encoding": encoding, "skip_bad_rows": skip_bad_rows}
    return partial(one_source, **given, **how, columns=columns or ())


def other_sources(tables: partial[str], data: list[str]) -> list[str]:
    """Return one string for each further data set; what is said of tables holds for tables."""
    from opera.data.loading import table_source
    from opera.data.sources import kind_of_files

    how = None, tables.keywords["encoding"], tables.keywords["skip_bad_rows"]
    given = [(each, kind_of_files(each) == "tables") for each in data]
    return [table_source(each, *how) if table else each for each, table in given]


def one_source(data: str | None, **given: Any) -> str:
    """Return one string for a data set, or for the tables in its place."""
    from opera.data.loading import data_source
    from opera.data.names import TABLES

    if data is not None and not data.startswith(TABLES):
        data = expand_user(data, "DATA")
    return data_source(data, **given)


Tables = Annotated[partial[str], Made(tables)]


def prompts(
    query_prompt: Annotated[
        str | None,
        typer.Option(
            "--query-prompt",
            help="text before each query, empty for none; auto: the data's or model's",
        ),
    ] = None,
    document_prompt: Annotated[
        str | None,
        typer.Option(
            "--document-prompt",
            help="text before each document, empty for none; auto: the data's or model's",
        ),
    ] = None,
) -> dict[str, str | None]:
    """Return the prompts by the names of arguments."""
    return {"query_prompt": query_prompt, "document_prompt": document_prompt}


Prompts = Annotated[dict[str, Any], Made(prompts)]


@dataclass(frozen=True)
class GivenSettings:
    """Settings as a command was given them.

    Attributes:
        config: recipes.
        assignments: ``key=value`` of ``--set``.
        options: by name of the setting.
    """

    config: list[str]
    assignments: list[str]
    options: Mapping[str, Any]

    def values(self, **more: Any) -> dict[str, Any]:
        """Merge them, with ``more`` that other options gave: see :func:`collect_values`."""
        return collect_values(self.config, self.assignments, {**self.options, **more})


def settings_but(*without: str) -> Made:
    """Make :class:`GivenSettings` of an option for each setting that has one, with the setting's
    own help, and of ``--set`` and recipes.
    """

    def collect(
        set_: SetOption = None,
        trainer: Annotated[
            list[str] | None,
            typer.Option(
                "--trainer",
                help="another field of the trainer's arguments, as key=value; repeatable",
            ),
        ] = None,
        config: Annotated[
            list[str] | None,
            source_option(
                "--config",
                "YAML recipe: a file, or the name of one of OPERA's; repeatable, later ones win",
            ),
        ] = None,
        **options: Any,
    ) -> GivenSettings:
        return GivenSettings(config or [], set_ or [], {**options, "trainer": trainer})

    *rest, _ = signature(collect, eval_str=True).parameters.values()
    collect.__signature__ = Signature(  # type: ignore[attr-defined]
        [_setting_option(name) for name in FLAGS if name not in without] + rest
    )
    return Made(collect)


def _setting_option(name: str) -> Parameter:
    """The option of a setting; pydantic checks its value, typer its type."""
    field = TrainSettings.model_fields[name]
    kind: Any = next((kind for kind in (int, float) if kind in leaves(field.annotation)), str)
    option = typer.Option(FLAGS[name], help=f"{field.description} ({name})")
    annotation = Annotated[kind | None, option]
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def collect_values(
    config: list[str] | None, assignments: list[str] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge the settings of a command: recipes in their order, then ``--set``, then the options
    that were given.

    Raises:
        SettingError: for a recipe that cannot be read, or a setting given by ``--set`` and by its
            own option.
    """
    from opera.config.recipe import (
        ADAPT_ARGUMENTS,
        override,
        recipe,
        unknown_name,
        with_full_names,
    )
    from opera.methods import AUTO, DEFAULT_METHOD

    given = {name: value for name, value in options.items() if value not in (None, ())}
    if "trainer" in given:
        given["trainer"] = parse_assignments(given["trainer"], "--trainer", "adam_beta2=0.98")
    assigned = with_full_names(parse_assignments(assignments or []))
    if others := [name for name in assigned if name in ADAPT_ARGUMENTS]:
        raise SettingError(*(unknown_name(name, ()) for name in others))
    if twice := given.keys() & assigned.keys():
        raise SettingError(
            f"given twice, by its own option and by --set: {', '.join(sorted(twice))}"
        )
    values = {**assigned, **given}
    method = str(values.get("method") or recipe(*config or []).get("method", AUTO))
    named = [label.partition(":")[0] for label in listed(method)]
    methods = [DEFAULT_METHOD if name.lower() == AUTO else name for name in named]
    return override(recipe(*config or [], methods=methods), values)


def as_given(line: str, arguments: list[str]) -> str:
    """Name settings by the options that gave them, in a line of a message."""
    options = {word.partition("=")[0] for word in arguments}
    by_name = {name: flag for name, flag in FLAGS.items() if flag in options}
    head, colon, rest = line.partition(":")

    def named(names: str, text: str) -> str:
        return re.sub(names, lambda name: by_name.get(name[0], name[0]), text)

    head = named(r"^\w+(?= )|(?<![-\w'])\w+(?==|$)", head)
    return (
        head + colon + named(r"(?<![-\w'/])[a-z]+(?:_[a-z]+)+(?![\w'/])", rest) if colon else line
    )


def listed(text: str | None) -> list[str]:
    """Split an option at its commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def numbers(name: str, text: str | None, example: str = "0,1,2") -> list[int] | None:
    """Read whole numbers separated by commas; ``None`` stays.

    Raises:
        SettingError: naming the option ``--name``, with an example.
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


def load_training_data(source: str, *models: str) -> RetrievalData:
    """Load data and locate the models before torch is loaded, which takes seconds."""
    from opera.data import load_data
    from opera.retrieval.locate import locate_model

    for model in models:
        locate_model(model)
    loaded = load_data(source)
    loaded.training_split()
    return loaded


def with_notes_logged(data: RetrievalData) -> RetrievalData:
    """Log what reading data merged, dropped or drew, and return the data."""
    for note in data.notes:
        log.info("note: %s", note)
    return data


def check_launcher() -> None:
    """Check what torchrun tells its processes; a shell may hold something else under these names.

    Raises:
        SettingError: naming the variable.
    """
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"):
        value = os.environ.get(name, "0")
        if not re.fullmatch(r"-?[0-9]{1,9}", value):
            raise SettingError(
                f"{name}: must be a whole number, got {shown(value)}; unset it, or start with "
                "torchrun"
            )


def several_processes() -> bool:
    """Whether torchrun started this process beside others."""
    size = os.environ.get("WORLD_SIZE", "1")
    return size.isdecimal() and int(size) > 1


def is_main_process() -> bool:
    """Whether this process prints results: the only one, or torchrun's first."""
    return not several_processes() or os.environ.get("RANK", "0") == "0"


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into a sentence on how to continue, and exit status 130."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nopera: interrupted; {advice()}", file=sys.stderr)
        raise typer.Exit(130) from None


def how_to_continue(status: Status) -> str:
    """Say after Ctrl-C how far a grid came."""
    done = f"{len(status.done)} of {len(status.cells)} cells are done"
    return f"{done}; the same command continues where it stopped"


def grid_exit_status(status: Status) -> int:
    """Say how many cells of a grid failed; return the exit status, 1 if any did."""
    if count := len(status.failed):
        cells = f"{count} cell{'s' * (count > 1)}"
        say(f"{cells} failed, see above; the same command tries again", file=sys.stderr)
    return int(bool(status.failed))
