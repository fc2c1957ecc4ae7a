"""Commands and Python functions take the same options, with the same defaults; docs/doors.md lists them."""

import inspect
from typing import Any

import pytest

from documents import ROOT
from doors import DOORS, TRAINING, cell, of_command, of_function, shared_options, table
from opera.config.training import TrainSettings
from opera.core.figures import DEFAULT_MEASURES

ON_COMMANDS = {"json", "config", "set", "trainer", "plan", "fail_if_worse"}
"""What only a command needs: the format of its output, its exit status, and texts in place of values."""
TABLES = {"pairs", "documents", "queries"}
"""A function takes loaded data: ``opera.load_data(pairs=...)``."""
OTHERWISE = {("evaluate", "overwrite")}
"""It is for ``--run-file``; the function returns the ranking."""

ONE_SIDED = {
    "train": {"help_settings", "require_gain", "callbacks"},
    "compare": {"steps"},  # the command's is a setting, with commas
    "evaluate": {"full", "run_file", "overwrite"},
    "search": {"interactive"},
    "show": {"serve", "port", "base"},
    "score": {"cbs"},  # cbs_pool in Python
    "export": {"onnx", "int8", "static", "forms"},
}
"""The options that only a command, or only a function, has, by door."""


def test_the_page_has_the_table():
    assert table() in (ROOT / "docs" / "doors.md").read_text(encoding="utf-8"), f"the table is now:\n{table()}"


@pytest.mark.parametrize("option", shared_options())
def test_a_command_and_its_function_take_the_same_options(option):
    sides = {door: cell(option, door) for door in DOORS if door != "quickstart"}
    one_sided = [door for door, side in sides.items() if side not in ("✓", "-") and (door, option) not in OTHERWISE]
    on_commands = {sides[door] for door in one_sided} == {"command"} and option in ON_COMMANDS | TABLES
    assert not one_sided or on_commands, sides


@pytest.mark.parametrize("door", [door for door in DOORS if door != "quickstart"])
def test_a_command_has_no_other_options_than_its_function(door):
    one_sided = {*of_command(door)} ^ {*of_function(door)}
    assert one_sided - TrainSettings.model_fields.keys() - ON_COMMANDS - TABLES == ONE_SIDED.get(door, set())


def default(value: Any) -> str:
    """Return a default as a user sees it: nothing, no text and ``auto`` mean the same."""
    is_empty = value in (None, "auto", (), inspect.Parameter.empty) or value is False or "Sentinel" in repr(value)
    return "" if is_empty else str(value)


def test_an_option_has_one_default():
    doors = [door for door in DOORS if door not in (*TRAINING, "quickstart")]
    values = {}
    for side in (side for door in doors for side in (of_command(door), of_function(door))):
        for option, value in side.items():
            values.setdefault(option, set()).add(default(value))
    assert {option: found for option, found in values.items() if len(found) > 1} == {
        "split": {"train", "test"},  # opera review looks at train first, evaluation at test
        "cbs_pool": {"", "0"},  # the command has --cbs
        "measures": {"", str(DEFAULT_MEASURES)},  # the command's depend on --full
    }
