"""Add tables of pairs and texts to the long relation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.columns import Columns, TableKind, note_of, unknown_columns
from opera.data.delimited_tables import without_apostrophe_sql
from opera.data.names import SPLIT_NAMES
from opera.data.relation import NUMBERS, Relation, id_rules
from opera.data.retrieval_data import BEIR_HEADER
from opera.data.table_files import open_texts
from opera.data.tables import BEIR_COLUMNS, TREC_COLUMNS, Table, literal_sql

STANDARD_COLUMNS = {*BEIR_COLUMNS, *BEIR_HEADER, *TREC_COLUMNS}
"""Columns of BEIR and TREC. They need no note."""
Roles = dict[str, list[str]]
"""Columns by role."""


def add_tables(
    relation: Relation,
    texts: Mapping[TableKind, Sequence[Table]],
    pairs: Sequence[tuple[str | None, Table]],
    columns: Columns,
) -> None:
    """Add tables of documents and queries, if there are any, and tables of pairs.

    Args:
        relation: gets the rows.
        texts: the tables of documents and of queries.
        pairs: name of the split, and table. The name is ``None`` if a column says it, or if all
            rows are train.
        columns: the columns that the user names.

    Raises:
        DataError: if a column is missing.
    """
    all_tables = [(kind, table) for kind, tables in texts.items() for table in tables]
    all_tables += [("pairs", table) for _, table in pairs]
    columns.check_used([(kind, table.name, table.columns) for kind, table in all_tables])
    tables_by_kind: list[tuple[TableKind, str | None, Table, Roles]] = [
        (kind, None, table, _roles(table, ("id", "text"), kind, columns))
        for kind, tables in texts.items()
        for table in tables
    ]
    pair_tables = [
        (split, table, _pair_roles(table, list(texts), columns)) for split, table in pairs
    ]
    for role in ("query", "document"):  # if only some tables have ids, OPERA numbers all texts
        all_roles = [roles for _, _, roles in pair_tables]
        negatives = role == "document" and any("negative" in roles for roles in all_roles)
        if negatives or not all(f"{role}_id" in roles for roles in all_roles):
            for roles in all_roles:
                roles.pop(f"{role}_id", None)
    tables_by_kind += [("pairs", *table) for table in pair_tables]
    files: dict[str, list[str]] = {}  # files read in the same way share a note
    for _, _, table, roles in tables_by_kind:
        if not set(table.columns) <= STANDARD_COLUMNS and (note := note_of(table.columns, roles)):
            files.setdefault(note, []).append(table.short)
    for note, names in files.items():
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        relation.notes.append(f"{names[0]}{more}: {note}")
    for kind, split, table, roles in tables_by_kind:
        if kind == "pairs":
            add_pairs(relation, table, roles, split)
        else:
            add_texts(relation, kind, table, roles)


def add_texts(relation: Relation, kind: TableKind, table: Table, columns: Roles) -> None:
    """Add a table with the roles ``id``, ``text`` and, optionally, ``title``."""
    relation.kinds.setdefault(kind, table.name)
    relation.source(table, columns)
    values = {"kind": f"'{kind}'"}
    values |= {
        role: column_text(table, columns.get(role)) or "''" for role in ("id", "title", "text")
    }
    relation.insert("texts", table, columns, values)


def add_pairs(
    relation: Relation, table: Table, columns: Roles, split_name: str | None = None
) -> None:
    """Add a table of pairs. ``split_name`` names the split of all rows; a column must not
    contradict it.
    """
    list_columns = relation.source(table, columns)
    _ignore_lists_of_numbers(relation, columns, list_columns)
    roles = ("query_id", "query", "document_id", "title", "grade", "weight")
    values = {role: column_text(table, columns.get(role)) or "NULL" for role in roles}
    values |= {name: name for name in ("document", "negative", "column_number")}
    if "title" in columns:
        values["title"] = f"title_of({values['title']}, negative)"
    values["grade"] = f"grade_of({values['grade']})"
    values["query_key"] = f"text_key({values['query']})"
    values["document_key"] = f"document_key({values['title']}, document)"
    values |= _split_values(table, columns, split_name)
    source_sql = _documents_sql(table, columns, list_columns, relation.lenient)
    relation.insert("pairs", table, columns, values, source_sql)


def _ignore_lists_of_numbers(relation: Relation, columns: Roles, list_columns: set[str]) -> None:
    """Remove the roles of numbers whose columns have lists, and note it."""
    for role in NUMBERS:
        if columns.get(role, [""])[0] in list_columns:
            name = shown(columns.pop(role)[0])
            relation.note(f"ignored the lists in column {name}: a row has one {role}")


def _documents_sql(table: Table, columns: Roles, list_columns: set[str], lenient: bool) -> str:
    """Return SQL that reads ``stream`` with a row per document: its text, whether it is a negative,
    and a number that orders the columns of documents.
    """
    positives, negatives = columns["document"], columns.get("negative", [])
    if len([*positives, *negatives]) == 1 and not list_columns & {*positives}:
        text = column_text(table, positives)
        return f"(SELECT *, {text} AS document, false AS negative, 0 AS column_number FROM stream)"
    lists = []
    for is_negative, names in ((False, positives), (True, negatives)):
        for number, name in enumerate(names, start=int(is_negative)):
            column = f"c{table.columns.index(name)}"
            texts = column if name in list_columns else f"[{column}]"
            lists.append(
                f"documents_of({texts}, {is_negative}, {number}, {is_negative or lenient})"
            )
    documents = f"unnest({' || '.join(lists)}, recursive := true)"
    # an empty text cannot be a negative
    return f"(SELECT *, {documents} FROM stream) WHERE NOT (negative AND blank(document))"


def _split_values(table: Table, columns: Roles, split_name: str | None) -> dict[str, str]:
    """Return the SQL of a row's split, of its name in the file, and of whether OPERA knows the
    split and it agrees with ``split_name``.
    """
    name = split_name or "train"
    split, name_in_file, known = literal_sql(SPLIT_NAMES.get(name, name)), literal_sql(name), "true"
    if "split" in columns:
        splits = ", ".join(f"'{name}': '{split}'" for name, split in SPLIT_NAMES.items())
        value = column_text(table, columns["split"])
        cell = f"lower(trim({value}, ' ' || chr(9) || chr(10) || chr(13)))"
        split_of_row = f"map {{{splits}}}[{cell}]"
        if split_name is None:
            name_in_file, known = cell, f"{split_of_row} IS NOT NULL"
            split = f"coalesce({split_of_row}, {value})"
        else:
            known = f"coalesce({split_of_row}, {split}) = {split}"
            split = f"CASE WHEN {known} THEN {split} ELSE {value} END"
    return {"split": split, "split_name": name_in_file, "known_split": known}


def read_documents(
    path: str, columns: Columns, encoding: str | None, skip_bad_rows: bool
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return id, title and text of the documents in a file or folder, and notes.

    A missing id or title is an empty string.

    Raises:
        DataError: with file, line, rule and value.
    """
    with TemporaryDirectory() as folder:
        relation = Relation(Path(folder), skip_bad_rows=skip_bad_rows)
        tables = open_texts(path, "documents", columns, relation.notes, encoding)
        columns.check_used([("documents", table.name, table.columns) for table in tables])
        for table in tables:
            roles = _roles(table, ["text"], "documents", columns)
            add_texts(relation, "documents", table, roles)
            if "id" in roles:
                relation.find_violations("texts", id_rules("id"))
        relation.check_rows()
        return relation.execute("SELECT id, title, text FROM texts").fetchall(), relation.notes


def column_text(table: Table, names: Sequence[str] | None) -> str | None:
    """The SQL of a role's column as a text; ``None`` if the table has no column for the role."""
    if not names:
        return None
    text = f"coalesce(c{table.columns.index(names[0])}, '')"
    return without_apostrophe_sql(text) if table.has_apostrophes else text


def _pair_roles(table: Table, listed_kinds: Sequence[TableKind], columns: Columns) -> Roles:
    """The columns of a table of pairs by role. If there is a table of texts, pairs hold its ids."""
    kinds: dict[str, TableKind] = {"query": "queries", "document": "documents"}
    roles = columns.choose(table.columns, "pairs", table.name)
    for role, kind in kinds.items():
        if kind in listed_kinds and f"{role}_id" in roles:
            roles[role] = roles.pop(f"{role}_id")
        elif kind not in listed_kinds and role not in roles and f"{role}_id" in roles:
            raise DataError(
                f"{table.name}: has ids of {kind} ({shown(roles[f'{role}_id'][0])}) but not "
                f"their texts; pass the texts with --{kind} FILE"
            )
    _check_roles(table, kinds, roles, "pairs", columns)
    if "documents" in listed_kinds:
        roles.pop("title", None)
    return roles


def _roles(table: Table, needed: Sequence[str], kind: TableKind, columns: Columns) -> Roles:
    """The columns of a table of texts by role."""
    roles = columns.choose(table.columns, kind, table.name)
    _check_roles(table, needed, roles, kind, columns)
    return roles


def _check_roles(
    table: Table, needed: Iterable[str], roles: Roles, kind: TableKind, columns: Columns
) -> None:
    if missing := [role for role in needed if role not in roles]:
        names, may_lack_header = table.first_line or table.columns, bool(table.first_line)
        raise unknown_columns(table.name, names, missing, roles, kind, may_lack_header, columns)
