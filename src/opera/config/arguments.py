"""Groups of arguments that several functions of :mod:`opera` take. Each group is declared once.

A function takes a group as ``**arguments: Unpack[Group]``. The decorator :func:`with_group` lists
its arguments in the function's signature and help, and rejects other names. Functions with an
output file check and write it here.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from opera.config.training import EncodingSettings
from opera.core.arguments import flag, user_path
from opera.core.files import check_output, replace_file, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

    from opera.data.loading import ColumnNames
    from opera.data.mixture import Source

Function = TypeVar("Function", bound=Callable[..., Any])


class ReadingArguments(TypedDict, total=False):
    """How to read tables, as in :func:`opera.load_data`."""

    columns: ColumnNames | None
    encoding: str | None
    skip_bad_rows: bool


class EncodingArguments(TypedDict, total=False):
    """How a model reads texts. The settings of these names have the help."""

    kind: Literal["dense", "sparse", "multi-vector"] | None
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    max_query_length: int | None
    max_passage_length: int | None
    passages: int | None
    query_prompt: str | None
    document_prompt: str | None


class ModelArguments(EncodingArguments, ReadingArguments, total=False):
    """How to read tables, and how a model reads their texts."""


ENCODING = tuple(EncodingArguments.__annotations__)
DEFAULTS = {"precision": "auto", "skip_bad_rows": False}
"""Other arguments are ``None`` by default: OPERA reads UTF-8, and takes the model's settings."""
HELP = {
    "columns": "columns of tables by role, as for ``opera.load_data``",
    "encoding": "encoding of tables, as for ``opera.load_data``",
    "skip_bad_rows": "leave out rows that break a rule, as for ``opera.load_data``",
    **{name: str(EncodingSettings.model_fields[name].description) for name in ENCODING},
}


def reading_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments about tables."""
    return {name: arguments[name] for name in ReadingArguments.__annotations__ if name in arguments}


def with_group(group: type[Any]) -> Callable[[Function], Function]:
    """Return a decorator for functions that take ``**arguments: Unpack[group]``."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[:-1]
        text = ""
        for name, kind in group.__annotations__.items():
            default, annotation = DEFAULTS.get(name), kind.__forward_arg__
            parameters.append(
                Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
            text += f"    {name}: {HELP[name]}.\n"
        signature = signature.replace(parameters=parameters)

        @functools.wraps(function)
        def checked(*values: Any, **arguments: Any) -> Any:
            signature.bind(*values, **arguments)
            return function(*values, **arguments)

        checked.__doc__ = re.sub(r" +arguments: .*\n", text, inspect.getdoc(function) or "")
        checked.__signature__ = signature  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


def checked_output(
    out: str | Path | None,
    formats: Sequence[str],
    overwrite: bool,
    data: Source,
    reads: Iterable[Path],
    name: str = "--out",
) -> Path | None:
    """Check the output file before any work, and return its path, if any.

    Raises:
        SettingError: if it cannot be written, would replace an input, or is inside the data.
    """
    from opera.data.loading import check_stays_out  # here, since --help needs no data

    if out is None:
        return None
    path, overwrite = user_path(out, name), flag(overwrite, "overwrite")
    check_output(path, name, formats, overwrite=overwrite, reads=reads)
    check_stays_out(path, name, data)
    return path


def write_table(
    path: Path, table: pa.Table, records: Iterable[Mapping[str, Any]] | None = None
) -> None:
    """Write a table as ``.parquet``, ``.tsv``, ``.csv`` or ``.jsonl``, by the suffix.

    A ``.jsonl`` file has an object per line: the ``records``, or the rows of the table.
    """
    from opera.data.delimited_tables import with_apostrophes  # here, since --help needs no data

    def write_jsonl(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for row in table.to_pylist() if records is None else records:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    if path.suffix == ".parquet":
        write_parquet(path, [table])
    elif path.suffix == ".jsonl":
        replace_file(path, write_jsonl)
    else:
        lines = partial(
            with_apostrophes(table).to_pandas().to_csv,
            sep="\t" if path.suffix == ".tsv" else ",",
            index=False,
            lineterminator="\n",
        )
        replace_file(path, lines)
