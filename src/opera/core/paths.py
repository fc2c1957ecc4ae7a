"""Paths as users give them, checked and expanded once: on the command line, in Python, and in
recipes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from opera.core.errors import SettingError
from opera.core.terminal import place, shown

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def expand_user(value: str | os.PathLike[str], name: str) -> str:
    """Expand ``~`` and check what every path must fulfil, also a source or a model that need not be
    a path.

    Args:
        value: as the user gave it.
        name: of the option or argument, for the message.

    Raises:
        SettingError: for what is no path, an empty path, and one that the system cannot look up.
    """
    text = value.__fspath__() if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise SettingError(f"{name}: must be a path, got {shown(value)}")
    if not text.strip():
        raise SettingError(f"{name}: must not be empty")
    try:
        text.encode("utf-8")  # run.json will hold it
        text = str(Path(text).expanduser()) if text.startswith("~") else text
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # for whoever reads or writes it to judge
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"{name} {place(text)}: {reason.lower()}") from None
    return text


def user_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return the path that a user gave, ``~`` expanded. Arguments and errors as for
    :func:`expand_user`.
    """
    return Path(expand_user(value, name))


def without_parents(path: Path) -> Path:
    """Return a path without ``..``. Links are followed first: the folder above a link's target is
    rarely the one above the link.
    """
    return path.resolve() if ".." in path.parts else path


def kind_of_place(path: Path) -> str | None:
    """Say what is at a path, links followed: ``"a file"``, ``"a folder"``, ``"a named pipe"``, ...;
    ``None``: nothing.
    """
    try:
        return KINDS.get(stat.S_IFMT(path.stat().st_mode), "a file")
    except OSError:
        return None
