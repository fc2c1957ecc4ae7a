"""Find the role of each column, from ``--columns`` or from the names that OPERA recognises."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.arrays import IntArray
from opera.core.errors import DataError, SettingError, nearest
from opera.core.terminal import shortened, shown

TableKind = Literal["pairs", "documents", "queries"]

_DOCUMENT_ID = ("document_id", "doc_id", "docid", "corpus_id", "passage_id", "pid", "docno", "did")
_QUERY_ID = ("query_id", "qid", "q_id", "question_id")

RECOGNISED: Mapping[TableKind, Mapping[str, tuple[str, ...]]] = {
    "pairs": {
        "query": (
            "query", "anchor", "question", "q", "query_text", "search_query", "sentence1",
            "sentence_1",
        ),
        "document": (
            "document", "positive", "passage", "answer", "doc", "pos", "a", "document_text",
            "passage_text", "sentence2", "sentence_2",
        ),
        "query_id": _QUERY_ID,
        "document_id": _DOCUMENT_ID,
        "title": ("title",),
        "grade": ("grade", "score", "relevance", "rel", "label", "rating"),
        "weight": ("weight", "clicks", "count"),
        "split": ("split",),
        "negative": ("negative", "neg", "hard_negative"),
    },
    "documents": {
        "id": ("id", "_id", *_DOCUMENT_ID),
        "title": ("title",),
        "text": (
            "text", "document", "passage", "contents", "content", "body", "document_text",
            "passage_text",
        ),
    },
    "queries": {
        "id": ("id", "_id", *_QUERY_ID),
        "text": ("text", "query", "question", "q", "query_text"),
    },
}  # fmt: skip
"""Names of columns by kind of table and role, in lower case. Spaces and hyphens count as
underscores. The name of a column of negatives may end with a number or a plural s."""

ROLES = tuple(dict.fromkeys(role for roles in RECOGNISED.values() for role in roles))
_QUALIFIED = tuple(
    f"{kind}.{role}" for kind in ("documents", "queries") for role in RECOGNISED[kind]
)

LISTS_OF_TEXTS = pa.list_(pa.string())
MOST_NAME = 80
"""Characters of the longest column name that a message suggests."""
_PARTS = re.compile(r",(?=\s*[\w.]+=)")
"""The comma between two assignments. Names of columns may contain commas too."""


def normal(name: str) -> str:
    """A column's name in the form of :data:`RECOGNISED`."""
    return "_".join(name.lower().replace("-", "_").split())


def matching_name(column: str, names: Sequence[str]) -> str | None:
    """The column that a user means: the exact name, or the only one that is equal when normal."""
    alike = [name for name in names if normal(name) == normal(column)]
    return column if column in names else alike[0] if len(alike) == 1 else None


def role_of(name: str, kind: TableKind) -> str | None:
    """The role of a column's name in a kind of table; ``None`` if OPERA does not recognise it."""
    normal_name, roles = normal(name), RECOGNISED[kind]
    if normal_name.rstrip("0123456789").rstrip("_").removesuffix("s") in roles.get("negative", ()):
        return "negative"
    return next((role for role, names in roles.items() if normal_name in names), None)


@dataclass(frozen=True)
class Columns:
    """The columns that the user names.

    Attributes:
        assignments: (role, column), in the user's order.
    """

    assignments: tuple[tuple[str, str], ...] = ()

    def of(self, kind: TableKind) -> list[tuple[str, str]]:
        """The (role, column) pairs for a kind of table."""
        parts = ((*role.rpartition("."), column) for role, column in self.assignments)
        return [
            (role, column)
            for qualifier, _, role, column in parts
            if qualifier in ("", kind) and role in RECOGNISED[kind]
        ]

    def numbered(self, kind: TableKind) -> bool:
        """Whether the user names the columns of a kind of table by their numbers."""
        named = [column for _, column in self.of(kind)]
        return bool(named) and all(column.isdigit() for column in named)

    def check_used(self, files: Sequence[tuple[TableKind, str, Sequence[str]]]) -> None:
        """Check that some file has each column; ``files`` are kind, name and columns.

        Raises:
            DataError: with the columns of all files.
        """
        for role, column in self.assignments:
            single = Columns(((role, column),))
            if not any(
                single.of(kind) and matching_name(column, names) for kind, _, names in files
            ):
                listed = "; ".join(f"{name}: {names_of(names)}" for _, name, names in files)
                hint = nearest(column[:100], [name for _, _, names in files for name in names])
                raise DataError(
                    f"--columns {role}={shortened(column)}: no file has this column for the role "
                    f"{role}{hint} ({shortened(listed, 400)})"
                )

    def choose(self, names: Sequence[str], kind: TableKind, table: str) -> dict[str, list[str]]:
        """Return a file's columns by role. The user's columns go before recognised names.

        Raises:
            DataError: if two columns fit one role.
        """
        chosen: dict[str, list[str]] = {}
        for role, column in self.of(kind):
            if (name := matching_name(column, names)) is not None:
                chosen.setdefault(role, []).append(name)
        named = {column for columns in chosen.values() for column in columns}
        has_q = "q" in map(normal, names)  # a column "a" is the answer only next to a column "q"
        columns_by_role: dict[str, list[str]] = {}
        for name in names:
            guessed = role_of(name, kind)
            is_free = guessed is not None and guessed not in chosen and name not in named
            if guessed is not None and is_free and (has_q or normal(name) != "a"):
                columns_by_role.setdefault(guessed, []).append(name)
        for role, columns in columns_by_role.items():
            if len(columns) > 1 and role != "negative":
                raise DataError(
                    f"{table}: {' and '.join(map(shown, columns))} could each be the {role}; "
                    f"choose one, as in --columns {quote(f'{role}={columns[0]}')}"
                )
        return chosen | columns_by_role


def parse_columns(options: Any) -> tuple[tuple[str, str], ...]:
    """Return (role, column) from a user's columns by role, or from ``role=column,...``.

    Raises:
        SettingError: for another format, an unknown role, or a repeated role. Only ``negative`` may
            have several columns.
    """
    pairs: list[tuple[Any, Any]] = []
    if isinstance(options, Mapping):
        for role, names in options.items():
            pairs += [(role, name) for name in (names if isinstance(names, list) else [names])]
    else:
        texts = options if isinstance(options, list | tuple) else [options] if options else []
        parts = [part.strip() for text in texts for part in _PARTS.split(str(text))]
        for part in parts:
            role, _, column = map(str.strip, part.partition("="))
            if not column:
                raise SettingError(
                    "--columns: must be ROLE=COLUMN, separated by commas, as in "
                    f"query=q,document=doc_id; got {shown(part)}"
                )
            pairs.append((role, column))
    assignments: list[tuple[str, str]] = []
    for role, column in pairs:
        if not isinstance(role, str) or not isinstance(column, str):
            raise SettingError(
                "columns: must map a role to a column or to a list of columns, as in "
                f"{{'query': 'q'}}; got {shown(role)}: {shown(column)}"
            )
        known_role = "grade" if role == "score" else role
        if known_role not in (*ROLES, *_QUALIFIED):
            raise SettingError(
                f"--columns: unknown role {shown(role)}{nearest(role[:100], ROLES)} "
                f"(known: {', '.join(ROLES)})"
            )
        if known_role != "negative" and any(known_role == other for other, _ in assignments):
            raise SettingError(f"--columns: the role {known_role} is given twice")
        assignments.append((known_role, column))
    return tuple(assignments)


def unknown_columns(
    table: str,
    names: Sequence[str],
    missing: Sequence[str],
    chosen: Mapping[str, list[str]],
    kind: TableKind,
    may_lack_header: bool,
    columns: Columns,
) -> DataError:
    """The error for a file without a column for some roles, with the option that solves it."""
    if kind == "pairs" and {"_id", "text"} <= set(names):
        return DataError(
            f"{table}: has texts but no pairs, like a file of a BEIR folder; "
            "pass the folder that contains its qrels/"
        )
    used = [name for names_of_role in chosen.values() for name in names_of_role]
    free = [name for name in names if name not in used and len(name) <= MOST_NAME]
    free += ["COLUMN"] * len(missing)
    qualifier = "" if kind == "pairs" else f"{kind}."
    assigned = [f"{role}={name}" for role, name in columns.assignments if role not in missing]
    suggested = [f"{qualifier}{role}={name}" for role, name in zip(missing, free, strict=False)]
    option = ",".join([*assigned, *suggested])
    by_number = ",".join(
        f"{qualifier}{role}={number}" for number, role in enumerate(missing, start=1)
    )
    return DataError(
        f"{table}: OPERA recognises no column for the {' and the '.join(missing)}; "
        f"the columns are {names_of(names)}; choose some, as in --columns {quote(option)}"
        + (f"; if the file has no header: --columns {by_number}" if may_lack_header else "")
    )


def names_of(names: Sequence[str]) -> str:
    """List columns for a message."""
    return shortened(", ".join(map(shown, names)), 300)


def note_of(names: Sequence[str], used: Mapping[str, Sequence[str]]) -> str:
    """Say which column has which role; empty if all columns have the names of their roles."""
    read = [
        f"{shown(name)} as {role}" for role in sorted(used, key=ROLES.index) for name in used[role]
    ]
    taken = {column for columns in used.values() for column in columns}
    unused = [name for name in names if name not in taken]
    if not unused and all(columns == [role] for role, columns in used.items()):
        return ""
    return f"read {', '.join(read)}" + (f"; not used: {names_of(unused)}" if unused else "")


Refuse = Callable[[IntArray, str, object], None]
"""Takes the positions of the values that break a rule, the rule, and the first value for the
message.
"""


def as_texts(
    values: pa.Array, name: str, refuse: Refuse, numbers: bool = False, lists: bool = False
) -> pa.Array:
    """Return a column as texts, or as lists of texts. A missing value becomes null.

    Args:
        values: an Arrow array.
        name: the name of the column.
        refuse: gets the values that are neither texts nor whole numbers.
        numbers: whether to accept any number. Lists of numbers become lists of nulls.
        lists: whether to accept lists of texts.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind, has_value = values.type, np.asarray(pc.invert(values.is_null(nan_is_null=not numbers)))
    if is_list(kind) and numbers:
        return pa.nulls(len(values), LISTS_OF_TEXTS)
    if is_list(kind) and lists:
        list_positions = np.asarray(pc.list_parent_indices(values))
        texts = as_texts(
            pc.list_flatten(values),
            name,
            lambda positions, *why: refuse(list_positions[positions], *why),
        )
        # Arrow's offsets also count the items of null lists
        ends = np.cumsum(np.bincount(list_positions, minlength=len(values)))
        return pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), texts)
    if numbers and (pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        simple = pa.int8() if pa.types.is_boolean(kind) else pa.float64()
        return values.cast(kind if kind == pa.float32() else simple).cast(pa.string())
    if pa.types.is_floating(kind):
        floats = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        # larger floats may be rounded, so two ids may become one
        limit = 2 ** (np.finfo(kind.to_pandas_dtype()).nmant + 1)
        is_whole = (np.abs(floats) < limit) & (floats == np.floor(floats))
        if (wrong_positions := np.flatnonzero(has_value & ~is_whole)).size:
            rule = (
                f"column {shown(name)} must be a text or a whole number, got {{}}; {kind} is exact "
                f"only below {limit:,}: store the numbers as int64 or as texts"
            )
            refuse(wrong_positions, rule, floats[wrong_positions[0]])
        values = pa.array(np.where(is_whole, floats, 0).astype(np.int64), mask=~has_value)
    elif not any(is_kind(kind) for is_kind in _TEXTS_AND_INTEGERS):
        if has_value.any():
            allowed = "numbers" if numbers else "texts or whole numbers"
            rule = f"column {shown(name)} must contain {allowed}, but its type is {kind}"
            refuse(np.flatnonzero(has_value), rule, "")
        # "0" avoids a second message, that the value is empty
        return pc.if_else(pa.array(has_value), "0", pa.scalar(None, pa.string()))
    return values.cast(pa.string())


_TEXTS_AND_INTEGERS = (
    pa.types.is_integer, pa.types.is_null, pa.types.is_string, pa.types.is_large_string,
    pa.types.is_string_view,
)  # fmt: skip


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
