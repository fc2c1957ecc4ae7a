"""Groups of arguments that several functions of :mod:`opera` take. Each group is declared once.

A function takes a group as ``**arguments: Unpack[Group]``. The decorator :func:`with_group` lists
its arguments in the function's signature and help, and rejects other names.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from opera.config.training import EncodingSettings

if TYPE_CHECKING:
    from opera.data.loading import ColumnNames

Function = TypeVar("Function", bound=Callable[..., Any])


class ReadingArguments(TypedDict, total=False):
    """How to read tables, as in :func:`opera.load_data`."""

    columns: ColumnNames | None
    encoding: str | None
    skip_bad_rows: bool


class EncodingArguments(TypedDict, total=False):
    """How a model reads texts. The settings of these names have the help."""

    precision: Literal["auto", "fp32", "bf16", "fp16"]
    max_query_length: int | None
    max_passage_length: int | None
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
