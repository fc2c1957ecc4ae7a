r"""Spoil valid files in all ways; the fuzzers are in tests/fuzz.

A fuzzer starts from valid files, spoils some, and runs what reads them inside ``only_refusals()``. What must hold: they
are read with every row accounted for, or an ``InputError`` says in printable lines what is wrong. Never another
exception, a wait, or a half-written entry in the cache. An example:

    @given(spoilt(b"method: dp"))
    def test_recipes(content: bytes) -> None:
        with workplace({"recipe.yaml": content}) as folder, only_refusals() as refusals:
            read_recipe(folder / "recipe.yaml")

Leave ``max_examples`` to the profile, or to ``few`` where an example takes long: 100 by default, 60 of tables with
``make test-slow``, 10,000 with ``make fuzz`` (``--hypothesis-profile=nightly``).
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st

from opera.core.errors import InputError
from opera.core.terminal import printable

BYTES = [
    b"", b"\0", b"\xff", b"\xc3", b"\x80", b"\n", b"\r", b"\r\n", b"\t", b"\t\t\n", b" ", b"\x1b[2J", b"\xef\xbb\xbf",
    "\u2028".encode(), "\x85".encode(), "\u202e".encode(), "١".encode(), b"\xed\xa0\x80", b"\\ud83d", b"\\u0000",
    b"NaN", b"-Infinity", b"1e999", b"-0", b"+1", b"1_0", b"null", b"true", b"{}", b"[]", b'""', b'"', b"\\",
    b",", b":", b"{", b"}", b"[", b"]", b"#", b"&a", b"*a", b"!!int x", b"!!python/object:os.system", b"- ",
    b"? ", b"<<: ", b"|", b"PK\x03\x04", b"\x93NUMPY", b"PAR1",
    b"\x80\x04\x95", b"\xff\xff\xff\x7f",
]  # fmt: skip
"""What breaks readers, or is often found in spoilt files."""

VALUES = [
    None, True, False, 0, 1, -1, 2**31, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308, "", " ", "\t", "a\n", "\0",
    "\x1b[2J", "\u202e", "\u2028", "\ud83d", "0", "NaN", "1e5", "~", "..", "/", "a/../b", "python:os", "x" * 5000,
    [], [[]], [None], [0], [""], ["a", 1], {}, {"": 0}, {"a": None}, {"_id": "a"}, float("nan"), float("inf"),
]  # fmt: skip
"""What should not stand where another value is expected. JSON cannot hold the last two, but Python writes them."""


@st.composite
def spoilt(draw: st.DrawFn, content: bytes) -> bytes:
    """Change bytes in 1 to 4 places: put in, replace, cut or copy some; lose or double a line."""
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            lines = content.splitlines(keepends=True) or [b""]
            number = draw(st.integers(0, len(lines) - 1))
            lines[number : number + 1] = draw(st.sampled_from([[], lines[number : number + 1] * 2]))
            content = b"".join(lines)
        else:
            start = draw(st.integers(0, len(content)))
            end = draw(st.integers(start, min(start + 60, len(content))) | st.just(len(content)))
            part = content[start:end]
            new = draw(st.sampled_from([*BYTES, part * 2]) | st.binary(max_size=3))
            content = content[:start] + new + content[end:]
    return content


Files = Mapping[str, bytes]
"""Contents by name."""


def few(examples: int) -> settings:
    """Settings of a slow fuzzer: fewer examples than the default 100, and as many as any other profile says."""
    return settings(max_examples=examples) if settings.default.max_examples == 100 else settings()


def json_lines(values: list[Any]) -> bytes:
    """Write JSON Lines, as :func:`to_json` does."""
    return b"".join(to_json(value) + b"\n" for value in values)


def to_json(value: Any) -> bytes:
    """Write JSON as Python does: also half characters, NaN, and whole numbers of any length."""
    return json.dumps(value, default=str).encode()


@contextmanager
def workplace(files: Files | None = None) -> Iterator[Path]:
    """A folder with the files of one example, and a cache of its own that must not hold half-written entries."""
    with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, OPERA_CACHE=f"{name}/cache"):
        folder = Path(name)
        for path, content in (files or {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        yield folder
        unfinished = [str(path) for path in (folder / "cache").rglob(".*")]
        assert not unfinished, f"left in the cache: {unfinished}"


@contextmanager
def only_refusals(also: Callable[[str], bool] = lambda _: True) -> Iterator[list[str]]:
    """Collect the message of the ``InputError`` that ends the block, if one does; check how it reads."""
    messages = []
    try:
        yield messages
    except InputError as error:
        message = str(error)
        assert message.strip()
        for line in error.lines:
            assert printable(line) == line, ascii(line)
            assert "\n" not in line
        assert len(message) < 3000, len(message)
        assert also(message), message
        messages.append(message)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each (container, key or index) in a value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
