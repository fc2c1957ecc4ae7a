"""Check the arguments of the Python functions, paths too, before any work. ``core/settings.py``
checks settings."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from opera.core.errors import SettingError
from opera.core.terminal import shown, shown_path

MOST = 1_000_000_000
"""Upper bound of counts without a smaller bound; a larger number is a typing error."""
MOST_SEED = 2**32 - 1


def whole_number(value: Any, name: str, lowest: int, highest: int = MOST) -> int:
    """Return a whole number between two bounds, both included. NumPy's integers pass, ``True``
    does not.

    Raises:
        SettingError: if the value is not a whole number within the bounds.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SettingError(f"{name}: must be a whole number, got {shown(value)}")
    number = int(value)
    if not lowest <= number <= highest:
        bound = (
            f"{lowest} or more" if number < lowest and highest == MOST else f"{lowest} to {highest}"
        )
        raise SettingError(f"{name}: must be {bound}, got {shown(number)}")
    return number


def number(value: Any, name: str, lowest: float, highest: float) -> float:
    """Return a number between two bounds, both included.

    Raises:
        SettingError: if the value is not a number within the bounds.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not lowest <= float(value) <= highest:
        raise SettingError(
            f"{name}: must be a number from {lowest:g} to {highest:g}, got {shown(value)}"
        )
    return float(value)


def text(value: Any, name: str) -> str:
    """Return a text.

    Raises:
        SettingError: if the value is not text.
    """
    if not isinstance(value, str):
        raise SettingError(f"{name}: must be text, got {shown(value)}")
    return value


def texts(value: Any, name: str) -> tuple[str, ...]:
    """Return the texts of a list, a tuple or another iterable.

    Raises:
        SettingError: if a value is not text.
    """
    return tuple(text(item, name) for item in several(value, name, "texts"))


def several(value: Any, name: str, plural: str) -> tuple[Any, ...]:
    """Return the values of a list, a tuple or another iterable, such as a generator.

    Args:
        value: the argument.
        name: the argument's name, for the message.
        plural: the plural noun for its values, for the message, such as "seeds".

    Raises:
        SettingError: if the argument is not iterable, or is text or bytes.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise SettingError(f"{name}: must be a list of {plural}, got {shown(value)}")
    return tuple(value)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: paths as texts, NumPy's numbers and arrays as Python's,
    also inside lists, tuples and mappings."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def flag(value: Any, name: str) -> bool:
    """Return ``True`` or ``False``; ``"no"`` is neither.

    Raises:
        SettingError: if the value is anything else.
    """
    if not isinstance(value, bool):
        raise SettingError(f"{name}: must be True or False, got {shown(value)}")
    return value


RUN_FILE = "run.json"
"""The record of a run, in its folder."""
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def expand_user(value: str | os.PathLike[str], name: str) -> str:
    """Expand ``~``, and check that the system can look a path up. A source or a model may also be
    a name.

    Args:
        value: the user's value.
        name: the option or argument, for the message.

    Raises:
        SettingError: if the value is not a path, is empty, or cannot be looked up.
    """
    text = value.__fspath__() if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise SettingError(f"{name}: must be a path, got {shown(value)}")
    if not text.strip():
        raise SettingError(f"{name}: must not be empty")
    try:
        text.encode("utf-8")  # since run.json will contain it
        text = str(Path(text).expanduser()) if text.startswith("~") else text
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # the caller decides whether the path must exist
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"{name} {shown_path(text)}: {reason.lower()}") from None
    return text


def user_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return a user's path with ``~`` expanded. Arguments and errors are those of
    :func:`expand_user`.
    """
    return Path(expand_user(value, name))


def absolute_path(path: str) -> str:
    """Return an existing path from the root; other names do not change."""
    return os.path.abspath(path) if os.path.lexists(path) else path  # noqa: PTH100 - keeps links


def expand_paths(value: Any, name: str) -> tuple[str, ...]:
    """Expand a user's path, or several in a list or another iterable, as :func:`expand_user`."""
    paths = [value] if isinstance(value, str | os.PathLike) else value
    return tuple(expand_user(path, name) for path in several(paths, name, "paths"))


def without_parents(path: Path) -> Path:
    """Return a path without ``..``, with links resolved first: a link and its target usually have
    different parent folders.
    """
    return path.resolve() if ".." in path.parts else path


def kind_of_place(path: Path) -> str | None:
    """Return ``"a file"``, ``"a folder"``, ``"a named pipe"``, ... for a path with links followed,
    or ``None`` if it does not exist.
    """
    try:
        return KINDS.get(stat.S_IFMT(path.stat().st_mode), "a file")
    except OSError:
        return None
