"""Values as users write them: YAML 1.2 in recipes, and ``key=value`` on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    NodeEvent,
)

from opera.core.errors import SettingError
from opera.core.reading import read_text
from opera.core.terminal import shortened, shown

MAX_CHARACTERS = 20_000
"""Of a recipe; the densest take a second to read."""
MAX_DEPTH = 20
"""Lists and mappings within each other."""
VERBATIM = ("query_prompt", "document_prompt")
"""Settings whose values are texts to be kept."""
MAX_BITS = 1024
"""Of a whole number."""


def parse_scalar(text: str) -> Any:
    """Read one YAML 1.2 value; text that is no YAML stays a string."""
    try:
        return _parse(text)
    except ValueError:
        return text


def read_recipe(path: Path) -> dict[str, Any]:
    """Read the flat values of a YAML recipe.

    Raises:
        SettingError: if the file cannot be read, is not plain YAML (tags, anchors and YAML 1.1 are
            not read), or is not a mapping of names to values.
    """
    place = f"--config {shortened(str(path))}"
    try:
        values = _parse(read_text(path))
    except OSError as error:
        raise SettingError(f"{place}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingError(f"{place}: {error}") from None
    if not isinstance(values, dict):
        raise SettingError(f"{place}: must map setting names to values, got {shown(values)}")
    for name in values:
        if not isinstance(name, str):
            raise SettingError(f"{place}: names of settings must be text, got {shown(name)}")
    return values


def parse_assignments(
    assignments: Sequence[str], option: str = "--set", example: str = "temperature=0.05"
) -> dict[str, Any]:
    """Read ``--set key=value`` arguments; values are YAML scalars, but those of :data:`VERBATIM`
    are kept as they are.

    Args:
        assignments: as they were given.
        option: what the messages start with.
        example: of an assignment.

    Raises:
        SettingError: if one is not ``key=value``, or a key is given twice.
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
        values[name] = _verbatim(text) if name in VERBATIM else parse_scalar(text)
    return values


def _verbatim(text: str) -> Any:
    """Keep a text as it is, with its colons and spaces; quotes around it are YAML's, and ``null``
    is no value.
    """
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return parse_scalar(text) if quoted or text == "null" else text


class _Constructor(SafeConstructor):
    """Leaves dates as text, since YAML 1.2's core schema has none, and bounds whole numbers."""

    def construct_yaml_int(self, node: Any) -> int:
        """Return a number that people may have meant."""
        with suppress(ValueError):
            value: int = super().construct_yaml_int(node)
            if value.bit_length() <= MAX_BITS:
                return value
        raise ValueError(f"holds a number that is none, or one of more than {MAX_BITS:,} bits")


_Constructor.add_constructor("tag:yaml.org,2002:int", _Constructor.construct_yaml_int)
_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _parse(text: str) -> Any:
    """Parse YAML 1.2 that holds plain values alone.

    Raises:
        ValueError: in words that can follow the name of the file.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
    try:
        _check_events(text)
        return _loader().load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = " ".join((getattr(error, "problem", None) or str(error)).split())
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"not YAML ({line}{shortened(problem)})") from None
    except TypeError:  # a list with a mapping in it, as a key
        raise ValueError("keys must be plain values, and one is a list or a mapping") from None


def _check_events(text: str) -> None:
    """Refuse what is more than plain values before any value is made: an alias can stand for
    millions of them.
    """
    depth = 0
    for event in _loader().parse(text):
        place = f"line {event.start_mark.line + 1}"
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise ValueError(
                f"{place}: anchors and aliases (& and *) are not read; repeat or quote the value"
            )
        if isinstance(event, NodeEvent) and getattr(event, "tag", None):
            raise ValueError(f"{place}: tags such as !!int are not read; quote the value")
        if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
            raise ValueError(f"{place}: must be YAML 1.2; remove the directive %YAML")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"{place}: nested more than {MAX_DEPTH} deep")


def _loader() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    return yaml
