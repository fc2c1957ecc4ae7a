"""Only regular files are read, and a byte-order mark does not belong to the text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opera.core.reading import open_file, read_json, read_text


def test_a_file_and_a_link_to_it_are_read_without_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('\ufeff{"a": "café"}\r\n', encoding="utf-8", newline="")
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "a") == read_text(tmp_path / "b") == '{"a": "café"}\r\n'
    assert read_json(tmp_path / "b") == {"a": "café"}


def test_nothing_waits_for_a_pipe_or_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path, kind in (
        (tmp_path / "pipe", "a named pipe"),
        (tmp_path / "link", "a named pipe"),
        ("/dev/zero", "a device"),
    ):
        with pytest.raises(OSError, match=f"it is {kind}"):
            open_file(Path(path))
