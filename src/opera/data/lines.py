"""Read files line by line, so that every error can name its line."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from opera.core.errors import DataError, nearest
from opera.data.checks import check_encodable

PROGRESS_BYTES = 50_000_000
"""Files larger than this show a progress bar."""


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (1-based line number, line without its line break) for each line that is not blank.

    Raises:
        DataError: if the file cannot be read or is not UTF-8.
    """
    number = 0
    try:
        size = path.stat().st_size
        hidden = None if size > PROGRESS_BYTES else True  # None: shown on a terminal only
        with (
            path.open(encoding="utf-8") as file,
            tqdm(total=size, desc=f"reading {path.name}", unit="B", unit_scale=True, disable=hidden) as bar,
        ):
            for number, line in enumerate(file, start=1):
                bar.update(len(line))
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{_undecodable_line(path)}: not UTF-8 ({error.reason}); convert the file to UTF-8"
        ) from None


def json_records(
    path: Path, required: Collection[str], optional: Collection[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) for each line of a JSON Lines file, and check the keys of each record.

    Raises:
        DataError: for a line that is not a JSON object, or has a missing or unknown key.
    """
    for number, line in numbered_lines(path):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: not JSON ({error.msg}): {_short(line)}") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}:{number}: must be a JSON object, got {_short(line)}")
        known = [*required, *optional]
        for key in record:
            if key not in known:
                raise DataError(
                    f"{path}:{number}: unknown column '{key}'{nearest(key, known)} (known: {', '.join(known)})"
                )
        for key in required:
            if key not in record:
                raise DataError(f"{path}:{number}: column '{key}' is missing (it has: {', '.join(record) or 'none'})")
        yield number, record


def text_field(path: Path, number: int, record: dict[str, Any], key: str) -> str:
    """Return a string column of a record, ``""`` if it is absent or null.

    Raises:
        DataError: if it has another type.
    """
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{path}:{number}: column '{key}' must be a string, got {_short(json.dumps(value))}")
    check_encodable(f"{path}:{number}: column '{key}'", value)
    return value


def _undecodable_line(path: Path) -> int:
    """Find the first line that is not UTF-8; Python decodes in blocks and does not report the line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 0


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
