"""Parse values: YAML 1.2 in recipes, and ``key=value`` on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError

from opera.core.errors import SettingError
from opera.core.files import read_text
from opera.core.terminal import shortened, shown

VERBATIM = ("query_prompt", "document_prompt")
"""Settings whose values are not parsed."""


def parse_scalar(text: str) -> Any:
    """Read one YAML 1.2 value; text that is not YAML stays a string."""
    try:
        return _parse(text)
    except ValueError:
        return text


def read_recipe(path: Path) -> dict[str, Any]:
    """Read the flat values of a YAML recipe.

    Raises:
        SettingError: if the file cannot be read, is not YAML, or is not a mapping of names to
            values.
    """
    option = f"--config {shortened(str(path))}"
    try:
        values = _parse(read_text(path))
    except OSError as error:
        raise SettingError(f"{option}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingError(f"{option}: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise SettingError(f"{option}: must map setting names to values, got {shown(values)}")
    return values


def parse_assignments(
    assignments: Sequence[str], option: str = "--set", example: str = "temperature=0.05"
) -> dict[str, Any]:
    """Read ``--set key=value`` arguments. Values are YAML scalars.

    Values of :data:`VERBATIM` keep their colons and spaces, unless they are quoted or ``null``.

    Args:
        assignments: the arguments.
        option: the option's name, for error messages.
        example: an assignment, for error messages.

    Raises:
        SettingError: if an argument is not ``key=value``, or a key is given twice.
    """
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise SettingError(
                f"{option} {shortened(assignment)}: must be key=value, such as {option} {example}"
            )
        if (name := key.strip()) in values:
            raise SettingError(f"{option} {shortened(name)}: given twice")
        is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
        is_verbatim = name in VERBATIM and not is_quoted and text != "null"
        values[name] = text if is_verbatim else parse_scalar(text)
    return values


class _Constructor(SafeConstructor):
    """Keeps dates as text: YAML 1.2's core schema has no dates, and a name may look like one."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _parse(text: str) -> Any:
    """Parse YAML 1.2. The loader returns only plain values, even if the text has tags.

    Raises:
        ValueError: with a message that can follow the name of the file.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    try:
        return yaml.load(text)
    except (YAMLError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = " ".join((getattr(error, "problem", None) or str(error)).split())
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"not YAML ({line}{shortened(problem)})") from None
