"""Parquet and Arrow files, read in batches of rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import shortened
from opera.data.tables.problems import Problems
from opera.data.tables.rows import BATCH_ROWS, Rows, TableFile

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class ArrowTable(TableFile):
    """A Parquet or Arrow file."""

    mark = ", row {}"

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as (schema, _):
            super().__init__(str(path), schema.names, path.name)

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows; a batch holds what was written together, or :data:`BATCH_ROWS` rows."""
        first = 1
        with self._opened(columns) as (_, batches):
            for batch in batches:
                batch.validate(full=True)  # a damaged file must not reach code that trusts offsets
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    part = batch.slice(start, BATCH_ROWS)
                    numbers = range(first, first + len(part))
                    yield Rows(numbers, {name: part[name] for name in columns})
                    first += len(part)

    @contextmanager
    def _opened(self, columns: Sequence[str] = ()) -> Iterator[tuple[pa.Schema, Iterable[Any]]]:
        try:
            with open_file(self.path) as file:
                if self.path.suffix.lower() == ".parquet":
                    parquet = pq.ParquetFile(file)
                    batches = parquet.iter_batches(BATCH_ROWS, columns=list(columns))
                    yield parquet.schema_arrow, batches
                elif file.peek(6)[:6] == b"ARROW1":
                    whole = pa.ipc.open_file(file)
                    yield whole.schema, map(whole.get_batch, range(whole.num_record_batches))
                else:
                    stream = pa.ipc.open_stream(file)
                    yield stream.schema, _to_the_end(stream, file)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, MemoryError):
                raise
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise DataError(f"{self.path}: cannot be read ({shortened(reason, 200)})") from None


def _to_the_end(stream: Any, file: Any) -> Iterator[pa.RecordBatch]:
    """Refuse a stream that was cut off between two batches, which Arrow takes for its end."""
    yield from stream
    file.seek(-len(END_OF_STREAM), os.SEEK_END)
    if file.read() != END_OF_STREAM:
        raise OSError("it was cut off: the mark at the end of the stream is missing")
