"""The options of commands and of their functions; ``python tests/doors.py`` prints the table of docs/doors.md."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer.main

import opera
from opera.cli import COMMANDS, app
from opera.config.recipe import ALIASES
from opera.config.training import TrainSettings

DOORS = [command.__name__ for commands in COMMANDS.values() for command in commands]
PYTHON = {"train": "adapt"}
"""Functions that are named otherwise than their commands; ``quickstart`` is a command alone."""
TRAINING = ("train", "compare")
"""Doors that take every setting, with ``--set`` or by name."""
ARGUMENTS = {"data", "query", "folder", "run", "corpus", "name"}
"""What a command takes without an option."""
COMMAND: Any = typer.main.get_command(app)


@functools.cache
def of_command(door: str) -> dict[str, Any]:
    """Return the default of each option of a command, by its name in Python."""
    named = {option.opts[0].lstrip("-").replace("-", "_"): option for option in COMMAND.commands[door].params}
    left_out = {*ARGUMENTS, "help"}
    return {ALIASES.get(name, name): option.default for name, option in named.items() if name not in left_out}


@functools.cache
def of_function(door: str) -> dict[str, Any]:
    """Return the default of each option of a function."""
    function: Callable[..., Any] | None = getattr(opera, PYTHON.get(door, door), None)
    parameters = {} if function is None else inspect.signature(function).parameters
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind not in kinds and name not in ARGUMENTS
    }


def cell(option: str, door: str) -> str:
    """Return where a door takes an option: everywhere, on one side, or nowhere."""
    if option in TrainSettings.model_fields and door in TRAINING:
        return "✓"
    on_command, in_python = option in of_command(door), option in of_function(door)
    if on_command and in_python:
        return "✓"
    return "command" if on_command else "Python" if in_python else "-"


def shared_options() -> list[str]:
    """Return the options of two doors or more, except settings that only training takes, in alphabetical order."""
    names = {name for door in DOORS if door not in TRAINING for name in {**of_command(door), **of_function(door)}}
    names |= of_command("train").keys() & of_command("compare").keys() - TrainSettings.model_fields.keys()
    return sorted(name for name in names if sum(cell(name, door) != "-" for door in DOORS) > 1)


def table() -> str:
    """Return the table of docs/doors.md."""
    heads = ["option", *DOORS]
    rows = [[f"`{option}`", *(cell(option, door) for door in DOORS)] for option in shared_options()]
    head, *body = (f"| {' | '.join(row)} |" for row in (heads, *rows))
    return "\n".join([head, "|---" * len(heads) + "|", *body])


if __name__ == "__main__":
    print(table())
