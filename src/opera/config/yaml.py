"""Values as users write them: YAML 1.2 in recipes, and ``key=value`` on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError

from opera.core.errors import SettingError


def parse_scalar(text: str) -> Any:
    """Read one YAML 1.2 value; text that is no YAML stays a string."""
    try:
        return _loader().load(text)
    except (YAMLError, ValueError):  # ValueError: a whole number of thousands of digits
        return text


def read_recipe(path: Path) -> dict[str, Any]:
    """Read the flat values of a YAML recipe.

    Raises:
        SettingError: if the file is missing, is not YAML, or is not a mapping of names to values.
    """
    try:
        values = _loader().load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"--config {path}: cannot be read ({error.strerror})") from None
    except (YAMLError, ValueError) as error:
        raise SettingError(f"--config {path}: not YAML ({str(error).splitlines()[0]})") from None
    if not isinstance(values, dict):
        raise SettingError(f"--config {path}: must map setting names to values, got {type(values).__name__}")
    return {str(name): value for name, value in values.items()}


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Read ``--set key=value`` arguments; values are YAML scalars.

    Raises:
        SettingError: if one is not ``key=value``.
    """
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"--set {assignment}: must be key=value, such as --set temperature=0.05")
        values[key.strip()] = parse_scalar(text)
    return values


class _Constructor(SafeConstructor):
    """Leaves dates as text: YAML 1.2's core schema has none."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _loader() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    return yaml
