"""``opera.pairs``: weak pairs of a corpus without labels, as a table to train on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user
from opera.data.lines import text_lines
from opera.data.python_source import python_sections
from opera.data.tables.columns import Columns, parse_columns, unknown_columns
from opera.data.tables.files import holds_tables, open_texts
from opera.data.tables.load import parts_of
from opera.data.tables.problems import Problems
from opera.data.tables.rows import DelimitedTable
from opera.data.text_sections import kind_of, sections_of, text_files
from opera.data.weak_pairs import Section, distinct
from opera.training_set.export_inputs import checked_output, write_table

log = logging.getLogger("opera")

PAIRS_FORMATS = (".csv", ".parquet", ".jsonl")
PYTHON = "python:"


def pairs(
    corpus: str | Path,
    *,
    out: str | Path | None = None,
    columns: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    overwrite: bool = False,
) -> pa.Table:
    """Make weak training pairs of a corpus without labels, of what its texts have: title and body,
    heading and section, question and answer, docstring and code.

    A title is left out that has fewer than three words, no text, or several texts.

    Args:
        corpus: a BEIR folder, or its ``corpus.jsonl`` alone; a table of documents (CSV, TSV, JSON
            Lines, Parquet, Arrow), of which titles are used, or else headings in the texts; a
            folder of Markdown or plain texts; or ``python:PACKAGE``.
        out: file to write as well: ``.csv``, ``.parquet`` or ``.jsonl``.
        columns: the columns of a table by role: ``id``, ``title``, ``text``.
        overwrite: replace ``out`` if it exists.

    Returns:
        A row per pair: ``query``; ``document_id`` if the corpus has ids and titles; ``document``,
        without the title; and ``origin``: ``title``, ``heading``, ``question`` or ``docstring``.

    Raises:
        InputError: for invalid input, or a corpus without such pairs.
    """
    source = expand_user(corpus, "corpus")
    path = checked_output(out, PAIRS_FORMATS, overwrite, source, [Path(source)], "--out")
    found, titled, notes = _sections(source, Columns(parse_columns(columns)))
    kept, left_out = distinct(found, whole=titled)
    listed = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    for note in [*notes, f"titles left out: {listed}"] if listed else notes:
        log.info("note: %s", note)
    if not kept:
        raise DataError(
            f"{source}: no text has a title, a heading or a question of three words or more, with "
            "a text below it that no other has"
        )
    rows = [(own.title, own.name, text, own.kind) for own in kept for text in own.lines]
    names = ("query", "document_id", "document", "origin")
    table = pa.table([pa.array(own, pa.string()) for own in zip(*rows, strict=True)], names)
    if not (titled and all(own.name for own in found)):
        table = table.drop_columns("document_id")
    if path is not None:
        write_table(path, table)
    return table


def _sections(source: str, columns: Columns) -> tuple[list[Section], bool, list[str]]:
    """Read the sections of a corpus; whether they are titled documents of a table; and notes."""
    place, notes = Path(source), list[str]()
    beir, is_python = place / "corpus.jsonl", source.startswith(PYTHON)
    files = [] if is_python or beir.is_file() else text_files(place)
    if {file.stem.upper() for file in files} == {"README"} and holds_tables(place):
        files = []  # it is about the tables
    if columns.given and (is_python or files):
        raise SettingError(f"--columns: is for tables, and {source} is none")
    if is_python:
        sections, notes = python_sections(source.removeprefix(PYTHON))
        return sections, False, notes
    if files:
        texts = ((str(file), "".join(text_lines(file))) for file in files)
        return [own for name, text in texts for own in sections_of(text, name)], False, notes
    rows = list(_documents(str(beir) if beir.is_file() else source, columns, notes))
    titled = [
        Section(name, "", title, [text.removeprefix(title).strip()], kind_of(title, "title"))
        for name, title, text in rows
        if title.strip()
    ]
    if titled:
        return titled, True, notes
    return [own for name, _, text in rows for own in sections_of(text, name)], False, notes


def _documents(place: str, columns: Columns, notes: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield id, title and text of the documents in a file or folder; what is missing is empty."""
    problems = Problems()
    files = open_texts(place, "documents", columns, notes)
    columns.check_used([("documents", file.name, file.columns) for file in files])
    for file in files:
        chosen = columns.choose(file.columns, "documents", file.name)
        if "text" not in chosen:
            lines = isinstance(file, DelimitedTable)
            raise unknown_columns(file.name, file.columns, ["text"], chosen, "documents", lines)
        for part in parts_of(file, chosen, problems):
            (text,), nothing = part["text"], [""] * part.n_rows
            ids = [own.ids().to_pylist() for own in part["id"]] or [nothing]
            titles = [own.texts().to_pylist() for own in part["title"]] or [nothing]
            yield from zip(ids[0], titles[0], text.texts().to_pylist(), strict=True)
    problems.check()
