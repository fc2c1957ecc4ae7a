"""Arguments that a command does not take, explained in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from opera.config.training import TrainSettings
from opera.core.settings import RULES
from opera.core.terminal import shown

USAGE_ERROR: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments; it exports only the class below this one."""

TYPER_RULES = {
    "a valid integer": RULES["int_type"],
    "a valid number": RULES["float_type"],
    "Unable to parse input string as an integer, exceeded maximum size": (
        f"must be {RULES['int_parsing_size']}"
    ),
}


def explain_usage(error: Any, arguments: Sequence[str]) -> str:
    """Say which argument is wrong, the rule, its value, and where to look."""
    hint = f"see {'opera' if error.ctx is None else error.ctx.command_path} --help"
    options: Sequence[str] = getattr(getattr(error, "param", None), "opts", ())
    value = _value_of(options, arguments)
    if value is not None and hasattr(error, "message") and error.message:
        return f"{options[0]}: {_rule(error.message)}, got {shown(value)}; {hint}"
    name = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    if hasattr(error, "possibilities") and name in TrainSettings.model_fields:
        return f"no such option: {error.option_name}; give it as --set {name}=VALUE"
    message = (
        " ".join(error.format_message().split())
        .replace(". Did you mean", "; did you mean")
        .rstrip(".")
    )
    return f"{message[:1].lower()}{message[1:]}; {hint}"


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
