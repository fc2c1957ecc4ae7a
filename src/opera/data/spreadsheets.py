"""Keep spreadsheets from running texts as formulas.

In CSV and TSV files, OPERA writes an apostrophe before a text that begins with ``=``, ``+``, ``-``,
``@``, a tab or a line break, and before a text that begins with apostrophes and one of these. When
it reads such a file, it removes one apostrophe from the same texts. Other texts stay as they are.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

FORMULA = r"'*[=+\-@\t\r\n]"
"""The beginning of a text that gets an apostrophe."""


def with_apostrophes(table: pa.Table) -> pa.Table:
    """Return a table to write, with apostrophes before texts that a spreadsheet would run."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = pc.replace_substring_regex(table[number], f"^({FORMULA})", r"'\1")
            table = table.set_column(number, field.name, column)
    return table


def without_apostrophe_sql(text: str) -> str:
    """Return the SQL of a text that :func:`with_apostrophes` may have changed."""
    pattern = FORMULA.replace("'", "''")
    return rf"regexp_replace({text}, '^''({pattern})', '\1')"
