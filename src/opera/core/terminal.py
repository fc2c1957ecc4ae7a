"""Print text of files and users safely: it cannot move the cursor, hide or reorder other text."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from typing import Any, TextIO

log = logging.getLogger("opera")
"""Notes and warnings for the user. The command line prints them on standard error."""
MAX_SHOWN = 100
"""Most characters of a value in an error message."""

_CONTROLS = (
    r"\x00-\x1f\x7f-\x9f"  # C0 and C1: U+009B alone starts a terminal command
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi: they reorder the text after them
    r"\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # invisible lines, marks and tags
    r"\ud800-\udfff"  # halves of surrogate pairs, which UTF-8 cannot encode
)
_UNSAFE_IN_LINES = re.compile(f"(?!\n)[{_CONTROLS}]")


def printable(text: object) -> str:
    r"""Escape the characters that could deceive a terminal or a reader, as Python does (``\x1b``,
    ``\u202e``). Newlines stay.
    """
    return _UNSAFE_IN_LINES.sub(
        lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text)
    )


def say(text: object = "", *, file: TextIO | None = None) -> None:
    """Print a line, by default on standard output. OPERA prints only with this function and with
    :class:`opera.cli.options.Screen`.
    """
    print(printable(text), file=file or sys.stdout, flush=True)


def shown(value: object) -> str:
    """Return a value for an error message: Python's repr on one line, cut in the middle if long."""
    return printable(shortened(repr(value)))


def command_line(*words: object) -> str:
    """Return a command of OPERA that runs when pasted into a shell: ``opera`` and quoted words."""
    return shlex.join(["opera", *map(str, words)])


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 query``, ``2,000 queries``."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun}"


def shown_path(path: object) -> str:
    """Return a path for an error message: on one line, safe to print, cut in the middle if long."""
    return escape_newlines(shortened(str(path)))


def escape_newlines(text: object) -> str:
    """Escape as :func:`printable` does, newlines too."""
    return printable(text).replace("\n", "\\n")


def first_line_of(error: BaseException) -> str:
    """Return the first line of a library's error, short and printable, or its type if it is
    empty.
    """
    return shortened(printable((str(error).strip().splitlines() or [type(error).__name__])[0]))


def shortened(text: str, limit: int = MAX_SHOWN) -> str:
    """Cut a text in the middle to ``limit`` characters."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}…{text[-(limit - limit // 2 - 1) :]}"


def error_summary(error: BaseException) -> str:
    """Return the type and the message of a library's error in one line."""
    return shortened(" ".join(f"{type(error).__name__}: {error}".split()), 200)


def json_text(value: Any) -> str:
    r"""Write a value as indented JSON that is safe to print: ``\uXXXX`` for the characters that
    :func:`printable` escapes.
    """
    utf8 = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=2, ensure_ascii=not utf8)
    return _UNSAFE_IN_LINES.sub(lambda match: json.dumps(match[0])[1:-1], text)
