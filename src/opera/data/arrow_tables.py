"""Tables of Arrow batches: Parquet and Arrow files, and tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import DataError
from opera.core.files import open_file
from opera.core.terminal import shortened
from opera.data.tables import BATCH_ROWS, Problems, Rows, Table


class MemoryTable(Table):
    """Record batches that can be read any number of times, such as those of a pyarrow table.

    Args:
        name: the name of the argument. Its rows count from 0.
        columns: the columns.
        read: yields record batches with the requested columns.
    """

    mark, skip, first = "[{}]", "skip_bad_rows=True", 0

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        read: Callable[[list[str]], Iterable[pa.RecordBatch]],
    ) -> None:
        super().__init__(name, columns, name)
        self._read = read

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield at most :data:`BATCH_ROWS` rows at once."""
        first = self.first
        for batch in self._read(list(columns)):
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)
                yield Rows(range(first, first + len(part)), {name: part[name] for name in columns})
                first += len(part)


class ArrowTable(MemoryTable):
    """A Parquet or Arrow file."""

    mark, skip, first = ", row {}", Table.skip, 1

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as (schema, _):
            super().__init__(str(path), schema.names, self._checked_batches)
        self.short = path.name

    def _checked_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self._opened(columns) as (_, batches):
            for batch in batches:
                batch.validate(full=True)  # a damaged file must not reach code that trusts offsets
                yield batch

    @contextmanager
    def _opened(self, columns: Sequence[str] = ()) -> Iterator[tuple[pa.Schema, Iterable[Any]]]:
        try:
            with open_file(self.path) as file:
                if self.path.suffix.lower() == ".parquet":
                    parquet = pq.ParquetFile(file)
                    batches = parquet.iter_batches(BATCH_ROWS, columns=list(columns))
                    yield parquet.schema_arrow, batches
                elif file.peek(6)[:6] == b"ARROW1":
                    reader = pa.ipc.open_file(file)
                    yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))
                else:
                    stream = pa.ipc.open_stream(file)
                    yield stream.schema, stream
        except MemoryError:
            raise
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise DataError(f"{self.path}: cannot be read ({shortened(reason, 200)})") from None
