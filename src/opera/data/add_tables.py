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
    list_columns, source_sql = relation.source(table, columns), "stream"
    for role in NUMBERS:
        if columns.get(role, [""])[0] in list_columns:
            name = shown(columns.pop(role)[0])
            relation.note(f"ignored the lists in column {name}: a row has one {role}")
    document_columns = [
        (f"c{table.columns.index(name)}", name in list_columns, role == "negative", part)
        for role in ("document", "negative")
        for part, name in enumerate(columns.get(role, ()), start=int(role == "negative"))
    ]
    if len(document_columns) == 1 and not document_columns[0][1]:
        text, negative, part = column_text(table, columns["document"]), "false", "0"
    else:
        items = " || ".join(_items(*document, relation.lenient) for document in document_columns)
        source_sql = f"(SELECT *, unnest({items}) AS item FROM stream)"
        text, negative, part = "item.text", "item.negative", "item.part"
        source_sql += (
            f" WHERE NOT ({negative} AND blank({text}))"  # an empty text cannot be a negative
        )
    query, title = (
        column_text(table, columns.get("query")) or "NULL",
        column_text(table, columns.get("title")),
    )
    titles = f"CASE WHEN {negative} THEN '' ELSE {title} END" if title else "NULL"
    split, name_in_file, known_split = _split_sql(table, columns, split_name)
    values = {
        "part": part, "split": split, "split_name": name_in_file, "known_split": known_split,
        "negative": negative, "query": query, "title": titles, "document": text,
        "query_key": f"text_key({query})", "document_key": f"document_key({titles}, {text})",
    }  # fmt: skip
    for role in ("query_id", "document_id", "grade", "weight"):
        values[role] = column_text(table, columns.get(role)) or "NULL"
    truth = f"map {{'true': '1', 'false': '0'}}[lower({values['grade']})]"  # as Excel and pandas
    values["grade"] = f"coalesce({truth}, {values['grade']})"
    relation.insert("pairs", table, columns, values, source_sql)


def _split_sql(table: Table, columns: Roles, split_name: str | None) -> tuple[str, str, str]:
    """Return the SQL of a row's split, of its name in the file, and of whether OPERA knows the
    split and it agrees with ``split_name``.
    """
    name = split_name or "train"
    split, split_name_in_file = literal_sql(SPLIT_NAMES.get(name, name)), literal_sql(name)
    if "split" not in columns:
        return split, split_name_in_file, "true"
    listed = ", ".join(f"'{name}': '{split}'" for name, split in SPLIT_NAMES.items())
    value = column_text(table, columns["split"])
    cell = f"lower(trim({value}, ' ' || chr(9) || chr(10) || chr(13)))"
    split_of_row = f"map {{{listed}}}[{cell}]"
    if split_name is None:
        return f"coalesce({split_of_row}, {value})", cell, f"{split_of_row} IS NOT NULL"
    known_split = f"coalesce({split_of_row}, {split}) = {split}"
    return f"CASE WHEN {known_split} THEN {split} ELSE {value} END", split_name_in_file, known_split


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


def _items(column: str, is_list: bool, negative: bool, part: int, lenient: bool) -> str:
    """Return SQL that turns a column of documents into a list."""
    if not is_list:
        column = f"[{column}]"
    elif not (negative or lenient):  # an empty list is a missing document
        column = f"(CASE WHEN len(coalesce({column}, [])) = 0 THEN [''] ELSE {column} END)"
    more = f"'negative': {str(negative).lower()}, 'part': {part}"
    item = f"{{'text': coalesce(text, ''), {more}}}"
    return f"list_transform(coalesce({column}, []), lambda text: {item})"


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
