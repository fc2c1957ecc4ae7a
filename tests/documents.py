"""What documents name: dotted names of the package, and command lines. Both fail where there is no such thing."""

import importlib
from pathlib import Path
from typing import Any

import typer

from opera.cli import app

ROOT = Path(__file__).parents[1]


def find(name: str) -> object:
    """Import a dotted name."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            thing = getattr(thing, part)
        return thing
    raise AttributeError(name)


def parse(arguments: list[str], app: typer.Typer = app) -> dict[str, Any]:
    """Read the words after ``opera``, or after the command of another app, without running them."""
    commands = typer.main.get_command(app)
    name, *rest = arguments
    assert name in commands.commands, f"there is no command {name}"
    try:
        return dict(commands.commands[name].make_context(name, rest).params)
    except typer.Exit:  # an option such as --help-settings, which is all there is to do
        return {}
    except Exception as error:  # a usage error, of whichever click this typer carries
        raise AssertionError(error) from error
