"""Which column plays which role: the names that OPERA recognises, and ``--columns``, which goes before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

from opera.core.errors import DataError, SettingError, nearest
from opera.core.terminal import shortened, shown

TableKind = Literal["pairs", "documents", "queries"]

_DOCUMENT_ID = ("document_id", "doc_id", "docid", "corpus_id", "passage_id", "pid", "docno", "did")
_QUERY_ID = ("query_id", "qid", "q_id", "question_id")

RECOGNISED: Mapping[TableKind, Mapping[str, tuple[str, ...]]] = {
    "pairs": {
        "query": ("query", "anchor", "question", "q", "query_text", "search_query", "sentence1", "sentence_1"),
        "document": (
            "document", "positive", "passage", "answer", "doc", "pos", "a", "document_text", "passage_text",
            "sentence2", "sentence_2",
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
        "text": ("text", "document", "passage", "contents", "content", "body", "document_text", "passage_text"),
    },
    "queries": {
        "id": ("id", "_id", *_QUERY_ID),
        "text": ("text", "query", "question", "q", "query_text"),
    },
}  # fmt: skip
"""Names of columns by kind of table and role, in small letters; spaces and hyphens count as underscores. A column of
negatives may have a number behind its name, or a plural s."""

ROLES = tuple(dict.fromkeys(role for roles in RECOGNISED.values() for role in roles))
_ALIASES = {"score": "grade"}
_QUALIFIED = tuple(
    f"{kind}.{role}" for kind in ("documents", "queries") for role in RECOGNISED[kind]
)


def normal(name: str) -> str:
    """A column's name as :data:`RECOGNISED` has it."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def role_of(name: str, kind: TableKind) -> str | None:
    """The role that a column's name stands for in a kind of table; ``None`` for any other name."""
    known, roles = normal(name), RECOGNISED[kind]
    if (
        "negative" in roles
        and known.rstrip("0123456789").rstrip("_").removesuffix("s") in roles["negative"]
    ):
        return "negative"
    return next((role for role, names in roles.items() if known in names), None)


@dataclass
class Columns:
    """What the user says of columns, and which of it a file had.

    Attributes:
        given: (role, column) in the order given.
        used: those that a file had.
    """

    given: tuple[tuple[str, str], ...] = ()
    used: set[tuple[str, str]] = field(default_factory=set)

    def of(self, kind: TableKind) -> list[tuple[str, str, tuple[str, str]]]:
        """What concerns a kind of table: role, column, and both as given."""
        found = []
        for role, column in self.given:
            where, dot, own = role.partition(".")
            if (dot and where == kind and own in RECOGNISED[kind]) or (
                not dot and role in RECOGNISED[kind]
            ):
                found.append((own or role, column, (role, column)))
        return found

    def check_used(self, has: Mapping[str, Sequence[str]]) -> None:
        """Check that every column was found in a file.

        Args:
            has: the columns of each file.

        Raises:
            DataError: naming the first that was not.
        """
        for role, column in self.given:
            if (role, column) not in self.used:
                listed = "; ".join(f"{name}: {names_of(columns)}" for name, columns in has.items())
                hint = nearest(column[:100], [name for columns in has.values() for name in columns])
                raise DataError(
                    f"--columns {role}={shortened(column)}: no file has such a column that could be the {role}{hint} "
                    f"({shortened(listed, 400)})"
                )


def parse_columns(values: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Read ``ROLE=COLUMN,...`` as ``--columns`` has it.

    Raises:
        SettingError: for something else, an unknown role, or a role given twice (``negative`` may be).
    """
    found: list[tuple[str, str]] = []
    for value in values:
        for part in value.split(","):
            role, equals, column = part.strip().partition("=")
            if not equals or not column.strip():
                raise SettingError(
                    f"--columns: must be ROLE=COLUMN, separated by commas, as in query=q,document=doc_id; "
                    f"got {shown(part)}"
                )
            found.append((role.strip(), column.strip()))
    return checked_columns(found)


def columns_by_role(columns: object) -> tuple[tuple[str, str], ...]:
    """Read columns as a program gives them: by role, or as ``role=column,...``; ``None`` is none.

    Raises:
        SettingError: as :func:`parse_columns`, and for anything that is neither.
    """
    listed = [] if columns is None else [columns] if isinstance(columns, str) else columns
    if isinstance(listed, Mapping):
        pairs = [(role, [own] if isinstance(own, str) else own) for role, own in listed.items()]
        for role, own in pairs:
            if not isinstance(role, str) or not _are_texts(own):
                raise SettingError(
                    f"columns: must name a column, or a list of columns, by role, as in {{'query': 'q'}}; "
                    f"got {shown(role)}: {shown(own)}"
                )
        return checked_columns((role, column) for role, own in pairs for column in own)
    if not _are_texts(listed):
        raise SettingError(
            f"columns: must be columns by role, or 'role=column', got {shown(columns)}"
        )
    return parse_columns(listed)


def _are_texts(values: object) -> TypeGuard[Iterable[str]]:
    return isinstance(values, Sequence) and all(isinstance(value, str) for value in values)


def checked_columns(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Check roles and columns that a user named.

    Raises:
        SettingError: for an unknown role, or one given twice (``negative`` may be).
    """
    found: list[tuple[str, str]] = []
    for given, column in pairs:
        role = _ALIASES.get(given, given)
        if role not in (*ROLES, *_QUALIFIED):
            raise SettingError(
                f"--columns: unknown role {shown(given)}{nearest(given[:100], ROLES)} (known: {', '.join(ROLES)})"
            )
        if role != "negative" and any(role == other for other, _ in found):
            raise SettingError(f"--columns: the role {role} is given twice")
        found.append((role, column))
    return tuple(found)


def choose(
    names: Sequence[str], kind: TableKind, given: Columns, place: str
) -> dict[str, list[str]]:
    """Return the columns of each role in a file; the columns given go before the names recognised.

    Args:
        names: the file's columns.
        kind: of table.
        given: what the user says.
        place: the file, for messages.

    Raises:
        DataError: where two columns could play one role.
    """
    chosen: dict[str, list[str]] = {}
    for role, column, as_given in given.of(kind):
        if column in names:
            given.used.add(as_given)
            chosen.setdefault(role, []).append(column)
    named = {column for columns in chosen.values() for column in columns}
    found: dict[str, list[str]] = {}
    for name in names:
        known = role_of(name, kind)
        if known is not None and name not in named:
            found.setdefault(known, []).append(name)
    if not any(normal(name) == "q" for name in names):  # "a" alone says nothing
        found["document"] = [name for name in found.get("document", []) if normal(name) != "a"]
    for role, columns in found.items():
        if role in chosen or not columns:
            continue
        if len(columns) > 1 and role != "negative":
            listed = " and ".join(shown(column) for column in columns)
            raise DataError(
                f"{place}: {listed} could each be the {role}; say which: --columns {role}={columns[0]}"
            )
        chosen[role] = columns
    return chosen


def unknown_columns(
    place: str,
    names: Sequence[str],
    missing: Sequence[str],
    chosen: Mapping[str, list[str]],
    kind: TableKind,
    may_lack_header: bool,
) -> DataError:
    """The error of a file without a column for some roles: its columns, and the option to write.

    Args:
        place: the file.
        names: its columns.
        missing: the roles without a column.
        chosen: the roles with one.
        kind: of table.
        may_lack_header: whether ``names`` may be a row and no header.
    """
    if kind == "pairs" and {"_id", "text"} <= set(names):
        return DataError(
            f"{place}: holds texts and no pairs, as in a BEIR folder; give the folder that has its qrels/"
        )
    taken = {column for columns in chosen.values() for column in columns}
    free = [name for name in names if name not in taken]
    where = "" if kind == "pairs" else f"{kind}."
    wanted = [
        f"{where}{role}={free[at] if at < len(free) else 'COLUMN'}"
        for at, role in enumerate(missing)
    ]
    by_number = ",".join(f"{where}{role}={at}" for at, role in enumerate(missing, start=1))
    return DataError(
        f"{place}: no column has a name known for the {' and the '.join(missing)}; its columns are {names_of(names)}; "
        f"say which to take, as in --columns {shortened(','.join(wanted), 200)}"
        + (f"; if the first line is no header: --columns {by_number}" if may_lack_header else "")
    )


def names_of(names: Sequence[str]) -> str:
    """List columns for a message."""
    return shortened(", ".join(shown(name) for name in names), 300)


def note_of(names: Sequence[str], used: Mapping[str, Sequence[str]]) -> str:
    """Say which columns of a file were read as what, and which were not used; empty where it goes without saying."""
    ordered = sorted(used, key=ROLES.index)
    read = ", ".join(f"{shown(column)} as {role}" for role in ordered for column in used[role])
    taken = {column for columns in used.values() for column in columns}
    unused = [name for name in names if name not in taken]
    plain = all(columns == [role] for role, columns in used.items())
    return (
        ""
        if plain and not unused
        else f"read {read}" + (f"; not used: {names_of(unused)}" if unused else "")
    )
