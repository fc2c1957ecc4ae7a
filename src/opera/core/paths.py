"""Check and expand the paths that users pass on the command line, in Python and in recipes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from opera.core.arguments import several
from opera.core.errors import SettingError
from opera.core.terminal import place, shown

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
        raise SettingError(f"{name} {place(text)}: {reason.lower()}") from None
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
