"""The long relation: a row per query and document, for every source; and the rules of its rows.

Every source becomes rows of ``pairs``. Tables of documents and queries become rows of ``texts``.
DuckDB holds both, and writes to disk if they exceed its memory limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from opera.core.arrays import IntArray
from opera.core.errors import DataError, StorageError
from opera.core.terminal import first_line_of, shown
from opera.data.columns import as_texts, is_list
from opera.data.delimited_tables import REJECTED, DelimitedTable
from opera.data.tables import Problems, Table, arrow_rows

MAX_GRADE = 1000


def check_string(subject: str, value: object) -> str:
    """Check that a value is a string that a file can hold, and return it.

    Args:
        subject: start of the message.
        value: the value.

    Raises:
        DataError: with the rule.
    """
    if not isinstance(value, str):
        raise DataError(f"{subject} must be a string, got {shown(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # as in a text that ends in the middle of an emoji
        raise DataError(
            f"{subject} contains half a character ({value[error.start]!r}, a cut emoji); remove it"
        ) from None
    return value


CONTROL_SQL = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"
LEAST, LARGEST = 1e-37, 1e28
"""The range of numbers other than 0. A number, and a sum of 2^31 numbers, must fit into 32 bits."""


class Rule(NamedTuple):
    """A rule of the long relation.

    Attributes:
        role: the column of the rule. Its name in the file replaces ``{column}`` in the text.
        broken: the SQL of whether a row breaks the rule.
        text: the rule in words, with advice. The value of the first bad row replaces ``{}``.
        numeric: whether the message shows the value as a number.
    """

    role: str
    broken: str
    text: str
    numeric: bool = False


ONE_LINE = (
    "column {column} must not contain a tab, a line break or another control character, got {}"
)
SIZE = f"column {{column}} must be 0, or from {LEAST:g} to {LARGEST:g} in size, got {{}}"
BETWEEN = (
    f"grade must be between -{MAX_GRADE} and {MAX_GRADE}, got {{}}; pass counts, such as clicks, "
    "as weights: --columns weight=COLUMN"
)


def id_rules(column: str) -> list[Rule]:
    """The rules of an id, which must fit into one column of a text file."""
    return [
        Rule(column, f"blank({column})", "column {column} must not be empty"),
        Rule(column, f"regexp_matches({column}, '{CONTROL_SQL}')", ONE_LINE),
    ]


def number_rules(column: str) -> list[Rule]:
    """The rules of a number."""
    value, has_value = f"number({column})", f"NOT blank({column})"
    fits = f"{value} IS NOT NULL AND NOT regexp_matches({column}, '[^0-9eE.+ -]')"
    large = f"{value} != 0 AND abs({value}) NOT BETWEEN {LEAST!r} AND {LARGEST!r}"
    finite = "column {column} must be a finite number, got {}"
    return [
        Rule(column, f"blank({column})", "column {column} is missing"),
        Rule(column, f"NOT ({fits}) AND {has_value}", "column {column} must be a number, got {}"),
        Rule(column, f"{fits} AND isinf({value})", finite, True),
        Rule(
            column,
            f"{fits} AND isfinite({value}) AND {large}",
            f"{SIZE}; rescale the column",
            True,
        ),
    ]


def rules(*, lenient: bool) -> list[Rule]:
    """The rules of the relation ``pairs``; see :class:`opera.data.relation.Relation`."""
    empty = "column {column} must not be empty; fill it or remove the row"
    no_document = "no_document(title, document)"
    query, document = "coalesce(query, query_id)", "coalesce(document, document_id)"
    texts = [
        Rule("query", f"blank(query) AND {document} IS NOT NULL", empty),
        Rule("document", f"{no_document} AND NOT negative AND {query} IS NOT NULL", empty),
    ]
    fraction = "number(grade) != floor(number(grade)) AND isfinite(number(grade))"
    weighed = f"split IN (SELECT split FROM pairs WHERE {fraction})"  # weights have no limit
    size = "abs(number(grade))"
    large = f"{size} > {MAX_GRADE} AND {size} <= {LARGEST!r} AND NOT {weighed}"
    split = "column {column} must be train, dev or test and agree with the file name, got {}"
    negative = Rule("weight", "number(weight) < 0", "weight must be 0 or more, got {}", True)
    ids = [rule for column in ("query_id", "document_id") for rule in id_rules(column)]
    numbers = [rule for column in ("grade", "weight", "score") for rule in number_rules(column)]
    range_of_grades = Rule("grade", large, BETWEEN, True)
    splits = Rule("split", "NOT known_split", split)
    all_data = [*ids, splits, *numbers, negative, range_of_grades]
    return all_data if lenient else [*texts, *all_data]


MEMORY = "400MB"
"""The memory limit of DuckDB. It writes larger tables to disk."""
WRITTEN_ROWS, ARROW_BYTES = 8192, 2**30
"""Rows and bytes of a batch of texts: an Arrow array holds up to 2 GiB."""
NUMBERS, LISTS = ("grade", "weight", "score", "first_rank"), ("document", "negative")
"""The roles of numbers, and the roles that accept lists of texts."""


def named_statements() -> dict[str, str]:
    """Return the SQL of ``ingest.sql`` by the names in its headings."""
    text = Path(__file__).with_name("ingest.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- == (.+) ==$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


STATEMENTS = named_statements()


@dataclass
class Relation:
    """Pairs and texts on their way into a data set.

    Attributes:
        folder: where DuckDB writes data that exceed the memory limit.
        lenient: leave out empty texts and unknown ids, for published data that a user cannot
            correct.
        skip_bad_rows: leave out the rows that break a rule; ``None``: the source has no such
            option.
        notes: sentences about columns, merged pairs and skipped rows.
        files: the tables in the order of their numbers, with their column names by role.
        kinds: the first table of each kind of texts that has tables.
    """

    folder: Path
    lenient: bool = False
    skip_bad_rows: bool | None = False
    notes: list[str] = field(default_factory=list)
    files: list[tuple[Table, Mapping[str, str]]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import duckdb  # slow to import, and many commands do not need it

        self.problems = Problems(self.skip_bad_rows)
        self._error, self._failure = duckdb.Error, list[BaseException]()
        spilled = str(self.folder / "spilled")
        self.db = duckdb.connect(
            config={"memory_limit": MEMORY, "temp_directory": spilled, "threads": 1}
        )
        self.run("prepare")

    def run(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run statements of ``ingest.sql`` with values for their parameters; return the rows."""
        return list(self.execute(STATEMENTS[name], values).fetchall())

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> Any:
        """Run a statement, and raise the errors of a reader.

        Raises:
            StorageError: for an error of DuckDB, such as a full disk.
        """
        try:
            return self.db.execute(sql, values or None)
        except self._error as error:
            if self._failure:
                raise self._failure.pop() from None
            raise StorageError(f"{self.folder}: {first_line_of(error)}") from error

    def batches(self, sql: str, longest: int, **values: Any) -> pa.RecordBatchReader:
        """Run a query of texts and return Arrow batches, which can be read once.

        ``longest`` is the number of bytes of the longest text.
        """
        max_rows = min(WRITTEN_ROWS, ARROW_BYTES // (longest + 1))
        return self.db.sql(sql, params=values).to_arrow_reader(max(1, max_rows))

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def source(self, table: Table, roles: Mapping[str, Sequence[str]]) -> set[str]:
        """Register a table as the relation ``stream``; return the names of its columns with lists.

        ``stream`` can be read once. It has the table rows, and the columns of ``roles`` as texts.
        ``c0`` is the first column of the table.
        """
        if isinstance(table, DelimitedTable):
            self.execute(f"CREATE OR REPLACE TEMP VIEW stream AS {table.scan(self.folder)}")
            return set()
        columns = {name: role for role, names in roles.items() for name in names}
        batches = self._as_texts(table, columns)
        first_batch = next(batches, None)
        if first_batch is None:
            nulls = {f"c{number}": pa.string() for number in range(len(table.columns))}
            self.stream(pa.schema({"table_row": pa.int64(), **nulls}))
            return set()
        self.stream(first_batch.schema, first_batch, batches)
        return {
            name for name in columns if is_list(first_batch[f"c{table.columns.index(name)}"].type)
        }

    def stream(self, schema: pa.Schema, *batches: Any) -> None:
        """Make record batches, or iterators of them, the relation ``stream``."""

        def read() -> Iterator[pa.RecordBatch]:
            try:
                for part in batches:
                    yield from [part] if isinstance(part, pa.RecordBatch) else part
            except BaseException as error:  # DuckDB would replace it by its own error
                self._failure.append(error)
                raise

        self.db.execute("DROP VIEW IF EXISTS stream")
        self.db.register("stream", pa.RecordBatchReader.from_batches(schema, read()))

    def stream_rows(self, rows: Iterable[Sequence[Any]], types: Mapping[str, pa.DataType]) -> None:
        """Make rows of Python values, the table row first, the relation ``stream``."""
        schema = pa.schema([("table_row", pa.int64()), *types.items()])
        self.stream(
            schema,
            (
                pa.record_batch(
                    [pa.array(table_rows, pa.int64()), *columns.values()], schema=schema
                )
                for table_rows, columns in arrow_rows(rows, types)
            ),
        )

    def _as_texts(self, table: Table, columns: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        for rows in table.batches(list(columns), self.problems):
            table_rows = np.asarray(rows.table_rows, dtype=np.int64)
            self.problems.count(table, len(table_rows))

            def refuse(positions: IntArray, *why: Any, table_rows: Any = table_rows) -> None:
                self.problems.add(table, table_rows[positions], *why)

            columns_of_batch = {"table_row": pa.array(table_rows)}
            for name, role in columns.items():
                columns_of_batch[f"c{table.columns.index(name)}"] = as_texts(
                    rows.columns[name], name, refuse, role in NUMBERS, role in LISTS
                )
            yield pa.record_batch(columns_of_batch)

    def insert(
        self,
        name: Literal["pairs", "texts", "id_list"],
        table: Table,
        roles: Mapping[str, Sequence[str]],
        values: Mapping[str, object],
        source_sql: str = "stream",
    ) -> None:
        """Add the rows of ``stream`` to a relation.

        Args:
            name: the relation.
            table: the file.
            roles: its columns by role.
            values: the SQL of each column; other columns are null.
            source_sql: the SQL that reads ``stream``.

        Raises:
            StorageError: as :meth:`execute`.
        """
        table_number = len(self.files)
        values = {"file": table_number, "table_row": "table_row", **values}
        self.files.append((table, {role: names[0] for role, names in roles.items()}))
        listed = ", ".join(str(value) for value in values.values())
        insert = f"INSERT INTO {name} ({', '.join(values)}) SELECT {listed} FROM {source_sql}"
        self.execute(insert)
        if isinstance(table, DelimitedTable):
            read = f"SELECT count(DISTINCT table_row) FROM {name} WHERE file = {table_number}"
            self.problems.count(table, self.execute(read).fetchone()[0])
            table.add_rejected(self.execute(REJECTED).fetchall(), self.problems)
            self.execute("DELETE FROM rejected")

    def find_violations(self, name: str, rules: Iterable[Rule]) -> None:
        """Find and collect the rows of a relation that break rules."""
        rules = list(rules)
        listed = ", ".join(f"coalesce(bool_or({rule.broken}), false)" for rule in rules)
        (broken_rules,) = self.execute(f"SELECT {listed} FROM {name}").fetchall()
        for is_broken, rule in zip(broken_rules, rules, strict=True):
            if is_broken:
                value = f"number({rule.role})" if rule.numeric else rule.role
                violations_sql = f"SELECT file, table_row, {value} FROM {name} WHERE {rule.broken}"
                self.add_violations(self.execute(violations_sql).fetchall(), rule.role, rule.text)

    def add_violations(self, violations: Iterable[Sequence[Any]], role: str, rule: str) -> None:
        """Collect the rows that break a rule: number of the file, table row and value.

        Args:
            violations: the rows that break the rule.
            role: the column of the rule. Its name in the file replaces ``{column}`` in the rule.
            rule: the rule in words. The value of the first bad row of a file replaces ``{}``.
        """
        in_order = sorted(violations, key=itemgetter(0, 1))
        for table_number, of_table in groupby(in_order, key=itemgetter(0)):
            table, roles = self.files[table_number]
            _, table_rows, values = zip(*of_table, strict=True)
            value = f"{values[0]:g}" if isinstance(values[0], float) else shown(values[0])
            words = rule.replace("{column}", shown(roles.get(role, role)))
            self.problems.add(table, table_rows, words, value)

    def check_rows(self) -> None:
        """Leave out the rows that break a rule, and note them.

        Raises:
            DataError: if the user did not ask for that, or the rows are too many.
        """
        self.problems.check()
        self.leave_out_broken()
        if self.problems.rows_by_rule:
            self.note(self.problems.note())

    def leave_out_broken(self) -> None:
        """Delete the rows that break a rule."""
        for table_number, (table, _) in enumerate(self.files):
            broken_rows = self.problems.broken(table)
            if broken_rows:
                self.db.register("broken", pa.table({"table_row": sorted(broken_rows)}))
                is_broken = f"file = {table_number} AND table_row IN (FROM broken)"
                for name in ("pairs", "texts", "id_list"):
                    self.execute(f"DELETE FROM {name} WHERE {is_broken}")
