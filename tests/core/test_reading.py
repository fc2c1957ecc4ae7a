"""Only regular files are read, and every refusal has a reason."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from opera.core.reading import open_file, parse_json, read_json, read_text


def test_a_file_and_a_link_to_it_are_read_without_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('\ufeff{"a": "café"}\r\n', encoding="utf-8", newline="")
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "a") == read_text(tmp_path / "b") == '{"a": "café"}\r\n'
    assert read_json(tmp_path / "b") == {"a": "café"}


def test_other_kinds_are_refused_and_nothing_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    reasons = {
        "pipe": "it is a named pipe",
        "link": "it is a named pipe",
        "folder": "it is a folder",
        "socket": "it is a socket",
        "loop": "Too many levels of symbolic links",
        "absent": "No such file or directory",
        "/dev/zero": "it is a device",
    }
    for name, reason in reasons.items():
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the reason is checked below
            open_file(tmp_path / name)
        assert caught.value.strerror == reason


@pytest.mark.parametrize(("content", "line"), [(b"a\nb\ncaf\xe9", 3), ("abc".encode("utf-16"), 1)])
def test_other_encodings_are_refused_with_the_line(tmp_path: Path, content: bytes, line: int) -> None:
    (tmp_path / "file").write_bytes(content)
    for read in (read_text, read_json):
        with pytest.raises(ValueError, match=rf"^line {line} is not UTF-8; convert"):
            read(tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"not JSON \(Expecting value at column 1\)"),
        ('{"a":\n oops}', r"not JSON \(Expecting value at line 2, column 2\)"),
        ("[" * 100_000, "not JSON .*"),
        ('["\\ud83d"]', r"holds half a character \('\\ud83d'\); remove it"),
    ],
    ids=["empty", "two lines", "deep", "half"],
)
def test_what_is_not_json_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_json(text)
