"""The command that repeats a run: what was given, without the places of this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from opera.config.recipe import make_recipe
from opera.data.names import MEMORY, TABLES
from opera.data.tables.files import TableSource
from opera.runs.record import RunRecord

PLAIN = re.compile(r"[A-Za-z_][\w.+-]*")
"""Texts that YAML reads as themselves, but for its words below."""
WORDS = ("true", "false", "null", "auto")


def short_source(source: str) -> str:
    """Return what a data set or a model is called, for readers elsewhere: of a path its last part."""
    if source.startswith(TABLES):
        return ", ".join(TableSource.parse(source).without_folders().files)
    return Path(source).name if is_place(source) else source


def short_data(record: RunRecord) -> str:
    """Return what the data of a run are called, for readers elsewhere: of several data sets, all."""
    return " + ".join(short_source(source) for source in _sources(record))


def _sources(record: RunRecord) -> list[str]:
    return [each.source for each in record.sets] if record.sets else [record.data.source]


def is_place(text: str) -> bool:
    """Whether a text, such as a prompt, happens to be the path of something here."""
    try:
        return Path(text).exists()
    except OSError:  # a name too long for the system
        return False


def repeat_command(record: RunRecord) -> str:
    """Return the ``opera train`` command of a run, each option on a line; settings at their default are left out.

    Data that no file holds are ``DATA``.
    """
    given = record.identity
    method = str(given["method"])
    defaults = make_recipe({"method": method}).flat()
    data, *others = _sources(record)
    words = [
        f"opera train {_as_data(data)}",
        *(f"--also {_as_data(other, alone=True)}" for other in others),
    ]
    words += [
        f"--model {shlex.quote(short_source(record.model.source))}",
        f"--method {shlex.quote(method)}",
    ]
    for name, default in defaults.items():
        if name != "method" and name in given and given[name] != default:
            words.append(f"--set {shlex.quote(f'{name}={_as_yaml(given[name])}')}")
    return " \\\n  ".join([*words, "--out run"])


def _as_data(source: str, alone: bool = False) -> str:
    """Write a data set as an argument; tables as their options, or ``alone`` as one word."""
    if source.startswith(MEMORY):
        return "DATA"
    if not source.startswith(TABLES):
        return shlex.quote(short_source(source))
    tables = TableSource.parse(source)
    return shlex.quote(str(tables.without_folders())) if alone else shlex.join(tables.options())


def _as_yaml(value: Any) -> str:
    """Write a value as ``--set`` reads it."""
    if isinstance(value, str) and os.sep in value:
        value = short_source(value)
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
