"""Arguments that a command does not take, explained in one line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import typer

from opera.core.settings import RULES
from opera.core.terminal import shown

USAGE_ERROR: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments; it exports only the class below this one."""

TYPER_RULES = {
    "a valid integer": RULES["int_type"],
    "a valid number": RULES["float_type"],
    "Unable to parse input string as an integer, exceeded maximum size": f"must be {RULES['int_parsing_size']}",
}
TAKES = {
    "evaluate": (1, "evaluate takes one data set: opera evaluate my-data --model run"),
    "search": (2, "search takes one data set and one query: opera search my-data QUERY --model run"),
}
"""How many arguments a command takes, and how to call it, by its name."""


def explain_usage(error: Any, arguments: Sequence[str]) -> str:
    """Say which argument is wrong, the rule, its value, and where to look."""
    command = "opera" if error.ctx is None else error.ctx.command_path
    hint = _one_data_set(arguments) or f"see {command} --help"
    options: Sequence[str] = getattr(getattr(error, "param", None), "opts", ())
    value = _value_of(options, arguments)
    if value is not None and hasattr(error, "message") and error.message:
        return f"{options[0]}: {_rule(error.message)}, got {shown(value)}; {hint}"
    if hint_for := _hint_for(getattr(error, "option_name", None)):
        return f"no such option: {error.option_name}; {hint_for}"
    message = " ".join(error.format_message().split()).replace(". Did you mean", "; did you mean").rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; {hint}"


def _hint_for(option: str | None) -> str:
    """What is meant by an option of another tool's; empty for any other mistake."""
    if option is None:
        return ""
    from opera.config.hints import option_hint
    from opera.config.training import TrainSettings

    return option_hint(option, TrainSettings.flat_fields)


def _rule(message: str) -> str:
    """Typer's rule, which is pydantic's, in the words of our settings."""
    words = message.replace("Input should be ", "must be ").split(", unable")[0].rstrip(".")
    for kind, rule in TYPER_RULES.items():
        words = words.replace(kind, rule)
    return words


def _value_of(options: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value that an option was given last."""
    value = None
    for at, word in enumerate(arguments):
        name, equals, rest = word.partition("=")
        if name in options:
            value = rest if equals else next(iter(arguments[at + 1 :]), None)
    return value


def _one_data_set(arguments: Sequence[str]) -> str:
    """Explain a model given as an argument, as in ``opera evaluate RUN DATA``; empty for other calls."""
    command, *others = arguments or [""]
    most, hint = TAKES.get(command, (0, ""))
    leading = list(takewhile(lambda argument: not argument.startswith("-"), others))
    return hint if len(leading) > most else ""
