"""Write tables and records of pairs to files: Parquet, TSV, JSON Lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.arguments import flag
from opera.core.files import check_output, replace_file, write_parquet
from opera.core.paths import user_path
from opera.data import RetrievalData, check_stays_out

ROWS_AT_ONCE = 1000
"""Rows of a table that are Python objects while it is written."""


def checked_output(
    out: str | Path | None,
    formats: Sequence[str],
    overwrite: bool,
    data: str | Path | RetrievalData,
    reads: Iterable[Path],
    name: str = "out",
) -> Path | None:
    """Return the file to write, checked before any work; ``None`` where none is asked for.

    Raises:
        SettingError: if it cannot be written, would replace what is read, or would be read as data.
    """
    if out is None:
        return None
    path, overwrite = user_path(out, name), flag(overwrite, "overwrite")
    check_output(path, name, formats, overwrite=overwrite, reads=reads)
    check_stays_out(path, name, data, folder=False)
    return path


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table in the format of the suffix: ``.parquet``, ``.tsv`` with a header, or ``.jsonl``."""
    if path.suffix == ".parquet":
        write_parquet(path, table)
    elif path.suffix == ".tsv":
        write_tsv(path, table.column_names, (row.values() for row in records(table)))
    else:
        write_jsonl(path, records(table))


def records(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, of which a few are Python objects at a time."""
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from batch.to_pylist()


def write_tsv(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write rows separated by tabs, after a header."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, delimiter="\t", lineterminator="\n")
            lines.writerow(header)
            lines.writerows(rows)

    replace_file(path, write)


def write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON object per line."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    replace_file(path, write)
