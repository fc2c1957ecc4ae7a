"""Paths as users give them, checked and expanded once: on the command line, in Python, and in
recipes."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from opera.core.errors import SettingError
from opera.core.terminal import place, shown

HIDDEN = (errno.ENOENT, errno.ENOTDIR)
"""What the system says of a path where nothing is: for whoever reads or writes it to judge."""

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
        SettingError: for what is no path, an empty path, one with a NUL or with bytes that are no
            text, a user that the system does not know, names that are too long, links in a circle,
            and folders that may not be entered.
    """
    text = value.__fspath__() if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise SettingError(f"{name}: must be a path, got {shown(value)}")
    if not text.strip():
        raise SettingError(f"{name}: must not be empty")
    if "\0" in text:
        raise SettingError(f"{name}: must not hold a NUL character, got {shown(text)}")
    try:
        text.encode("utf-8")
        text = str(Path(text).expanduser()) if text.startswith("~") else text
        Path(text).stat()
    except UnicodeEncodeError:
        advice = "rename the file" if sys.getfilesystemencoding() == "utf-8" else "set PYTHONUTF8=1"
        raise SettingError(f"{name}: must be text in UTF-8, got {shown(text)}; {advice}") from None
    except RuntimeError:
        raise SettingError(f"{name} {place(text)}: there is no such user") from None
    except OSError as error:
        if error.errno not in HIDDEN:
            raise SettingError(f"{name} {place(text)}: {_reason(error)}") from None
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

    Raises:
        SettingError: for a path that the system cannot look up.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno in HIDDEN:
            return None
        raise SettingError(f"{place(path)}: {_reason(error)}") from None
    return KINDS.get(stat.S_IFMT(mode), "a file")


def _reason(error: OSError) -> str:
    """Say in plain words why a path cannot be looked up."""
    if error.errno == errno.ENAMETOOLONG:
        return "the name is too long for this file system"
    if error.errno == errno.ELOOP:
        return "its links lead in a circle"
    return f"cannot be looked up ({error.strerror})"
