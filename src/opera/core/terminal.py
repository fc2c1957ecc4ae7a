"""Text from files and users made safe to print: nothing in it can move the cursor, hide or reorder
what is shown."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

MAX_SHOWN = 100
"""Characters of a value that an error message shows."""

_CONTROLS = (
    r"\x00-\x1f\x7f-\x9f"  # C0 and C1: U+009B alone starts a terminal command
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi: what follows is shown in another order
    r"\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # lines, marks and tags unseen
    r"\ud800-\udfff"  # half a character, which UTF-8 cannot hold
)
_UNSAFE_IN_LINES = re.compile(f"(?!\n)[{_CONTROLS}]")


def printable(text: object) -> str:
    r"""Escape what a terminal or a reader could mistake, as Python does (``\x1b``, ``\u202e``);
    newlines stay.
    """
    return _UNSAFE_IN_LINES.sub(
        lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text)
    )


def say(text: object = "", *, file: TextIO | None = None) -> None:
    """Print a line, on standard output unless another file is given. OPERA prints by this and by
    its console only.
    """
    with printing_to(file or sys.stdout):
        print(printable(text), file=file or sys.stdout, flush=True)


@contextmanager
def printing_to(file: object) -> Iterator[None]:
    """Name standard output in an error of writing to it, such as a full disk; Python does not."""
    try:
        yield
    except OSError as error:
        if file is sys.stdout and error.filename is None:
            error.filename = "standard output"
        raise


def shown(value: object) -> str:
    """Return a value as an error message shows it: as Python writes it, on one line, long ones cut
    in the middle.
    """
    return printable(shortened(repr(value)))


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 query``, ``2,000 queries``."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun}"


def place(path: object) -> str:
    """Return a path as an error message shows it: on one line, safe to print, a long one cut in the
    middle.
    """
    return one_line(shortened(str(path)))


def one_line(text: object) -> str:
    """Escape as :func:`printable` does, newlines too."""
    return printable(text).replace("\n", "\\n")


def first_line(error: BaseException) -> str:
    """Return the first line of an error of a library, short and printable; its type where it says
    nothing.
    """
    return shortened(printable((str(error).strip().splitlines() or [type(error).__name__])[0]))


def shortened(text: str, limit: int = MAX_SHOWN) -> str:
    """Cut a text in the middle to ``limit`` characters."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}…{text[-(limit - limit // 2 - 1) :]}"


def in_one_line(error: BaseException) -> str:
    """The kind and the message of an error of a library, in one line."""
    return shortened(" ".join(f"{type(error).__name__}: {error}".split()), 200)


def json_text(value: Any) -> str:
    r"""Write a value as indented JSON that is safe to print: what :func:`printable` escapes stands
    as ``\uXXXX``.
    """
    utf8 = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=2, ensure_ascii=not utf8)
    return _UNSAFE_IN_LINES.sub(lambda match: json.dumps(match[0])[1:-1], text)
