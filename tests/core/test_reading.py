"""Only regular files are read, and every refusal has a reason."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.core.errors import DataError
from opera.core.reading import open_file, parse_json, read_json, read_text
from opera.data.lines import numbered_lines


def test_a_file_and_a_link_to_it_are_read_without_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\ufeffcafé\r\n", encoding="utf-8", newline="")
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "a") == read_text(tmp_path / "b") == "café\r\n"


def test_other_kinds_are_refused_and_nothing_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    reasons = {
        "pipe": "it is a named pipe",
        "link": "it is a named pipe",
        "folder": "it is a folder",
        "socket": "it is a socket",
        "loop": "Too many levels of symbolic links",
        "dangling": "No such file or directory",
        "a" * 300: "File name too long",
        "nul\0": "its name holds a NUL character",
        "/dev/zero": "it is a device",
    }
    for name, reason in reasons.items():
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the reason is checked below
            open_file(tmp_path / name)
        assert caught.value.strerror == reason


def test_other_encodings_are_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a\nb\ncaf\xe9")
    with pytest.raises(ValueError, match=r"^line 3 is not UTF-8; convert"):
        read_text(tmp_path / "latin")
    (tmp_path / "utf16").write_text("abc", encoding="utf-16")
    with pytest.raises(ValueError, match=r"^line 1 is not UTF-8; convert"):
        read_text(tmp_path / "utf16")


def test_a_file_of_absurd_size_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.core.reading.MOST_BYTES", 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(ValueError, match=r"^has more than 10 bytes, which no file of its kind has$"):
        read_text(tmp_path / "large")
    (tmp_path / "large").write_bytes(b"x" * 10)
    assert read_text(tmp_path / "large") == "x" * 10


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32-le"])
def test_utf_16_and_32_are_known_with_a_mark_and_without(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "wide").write_text('{"_id": "d1", "text": "one"}', encoding=encoding)
    said = "not UTF-8; convert the file to UTF-8"
    with pytest.raises(ValueError, match=rf"^line 1 is {said}$"):
        read_text(tmp_path / "wide")
    with pytest.raises(DataError, match=rf"wide:1: {said}$"):
        list(numbered_lines(tmp_path / "wide"))


@pytest.mark.parametrize("content", [b"", b"a", b"abcd", b"abcd\0b"])
def test_other_files_are_not_taken_for_them(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_text(tmp_path / "file") == content.decode()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans())
def test_json_is_read(value: object, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"not JSON \(Expecting value at column 1\)"),
        ("\t\t", r"not JSON \(Expecting value at column 3\)"),
        ('{"a":\n oops}', r"not JSON \(Expecting value at line 2, column 2\)"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' occurs twice"),
        ('[{"x": {"a": 1, "a": 2}}]', "the key 'a' occurs twice"),
        ("NaN", "holds NaN, which is no number of JSON"),
        ("[-Infinity]", "holds -Infinity, which is no number of JSON"),
        ("[1e999]", "holds the number 1e999, which is too large"),
        ("9" * 5000, "holds a whole number of 5,000 digits; at most 1,000 are read"),
        ('["\\ud83d"]', r"holds half a character \('\\ud83d'\); remove it"),
        ('{"\\udc00": 1}', r"holds half a character \('\\udc00'\); remove it"),
        ("[" * 101 + "]" * 101, "nested more than 100 deep"),
        ("[" * 2000 + "]" * 2000, "nested more than 100 deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested more than 100 deep"),
    ],
    ids=lambda value: value[:20],
)
def test_the_rest_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_json(text)


def test_what_looks_alike_is_read() -> None:
    assert parse_json("[" * 100 + "]" * 100)
    assert parse_json('"' + "[" * 500 + '"') == "[" * 500
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"
    assert parse_json(json.dumps("NaN")) == "NaN"


def test_a_file_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('\ufeff{"a": 1}', encoding="utf-8")
    assert read_json(path) == {"a": 1}
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError, match=r"^line 1 is not UTF-8"):
        read_json(path)
