"""Tables in place of a data set: the options that every command with a DATA argument takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args

import typer

from opera.core.errors import SettingError
from opera.core.paths import expand_user

OPTIONS = {
    "pairs": Annotated[
        list[str] | None,
        typer.Option(
            "--pairs", help="table of pairs, or SPLIT=FILE; repeatable: CSV, TSV, JSONL, Parquet, Arrow, TREC qrels",
            metavar="FILE",
        ),
    ],
    "documents": Annotated[
        str | None, typer.Option("--documents", help="table of the documents whose ids are in --pairs", metavar="FILE")
    ],
    "queries": Annotated[str | None, typer.Option("--queries", help="table of the queries, likewise", metavar="FILE")],
    "columns": Annotated[
        list[str] | None,
        typer.Option(
            "--columns", help="which columns to read: query=q,document=doc_id,weight=clicks", metavar="ROLE=COLUMN"
        ),
    ],
}  # fmt: skip
"""By name of the parameter."""


def takes_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that has a parameter ``data`` the options of tables, and pass on one string for either.

    A command whose ``data`` is a list takes several data sets, or one of tables. One with a second argument takes it
    first where tables stand in place of DATA.
    """
    signature = inspect.signature(command, eval_str=True)
    if "data" not in signature.parameters or not _is_argument(signature.parameters["data"]):
        return command
    several = "list[" in str(signature.parameters["data"].annotation)
    parameters = [_optional(own) if _is_argument(own) else own for own in signature.parameters.values()]
    second = next((own.name for own in parameters[1:] if _is_argument(own)), None)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in OPTIONS.items()
    ]

    @wraps(command)
    def with_tables(**values: Any) -> None:
        tables = {name: values.pop(name) or () for name in OPTIONS}
        data = values["data"]
        if second is not None and values[second] is None:
            if not tables["pairs"] or data is None:
                raise SettingError(f"missing argument '{second.upper()}'; see opera {command.__name__} --help")
            data, values[second] = None, data
        named = [_named(own, tables) for own in ((data or [None]) if several else [data])]
        values["data"] = named if several else named[0]
        command(**values)

    keyword = [own.replace(kind=inspect.Parameter.KEYWORD_ONLY) for own in parameters]
    with_tables.__signature__ = signature.replace(parameters=[*keyword, *added])  # type: ignore[attr-defined]
    with_tables.__annotations__ = {own.name: own.annotation for own in (*keyword, *added)}
    return with_tables


def _named(data: str | None, tables: dict[str, Any]) -> str:
    """One string for a data set or tables."""
    from opera.data.loading import data_source
    from opera.data.names import TABLES

    if data is not None and not data.startswith(TABLES):
        data = expand_user(data, "DATA")
    return data_source(data, **tables)


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, type(typer.Argument())) for part in get_args(parameter.annotation)[1:])


def _optional(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, *about = get_args(parameter.annotation)
    return parameter.replace(default=None, annotation=Annotated[(kind | None, *about)])
