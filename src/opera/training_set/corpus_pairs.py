"""``opera.pairs``: weak pairs of a corpus without labels, as a table to train on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from markdown_it import MarkdownIt

from opera.core.arguments import flag
from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user
from opera.data.adapters import read_documents
from opera.data.columns import Columns, parse_columns
from opera.data.python_source import python_sections
from opera.data.table_files import holds_tables
from opera.data.text_files import checked_encoding, text_lines
from opera.data.weak_pairs import MIN_WORDS, Section, distinct
from opera.training_set.export_inputs import checked_output, write_table

log = logging.getLogger("opera")

PAIRS_FORMATS = (".csv", ".parquet", ".jsonl")
PYTHON = "python:"


def pairs(
    corpus: str | Path,
    *,
    out: str | Path | None = None,
    columns: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
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
        encoding: of text files, as Python names it, such as ``cp1252``; ``None``: UTF-8.
        skip_bad_rows: leave out the rows of a table that break a rule, with a note.
        overwrite: replace ``out`` if it exists.

    Returns:
        A row per pair: ``query``; ``document_id`` if the corpus has ids and titles; ``document``,
        without the title; and ``origin``: ``title``, ``heading``, ``question`` or ``docstring``.

    Raises:
        InputError: for invalid input, or a corpus without such pairs.
    """
    source = expand_user(corpus, "corpus")
    path = checked_output(out, PAIRS_FORMATS, overwrite, source, [Path(source)], "--out")
    roles, skip = Columns(parse_columns(columns)), flag(skip_bad_rows, "skip_bad_rows")
    sections, titled, notes = _sections(source, roles, checked_encoding(encoding), skip)
    distinct_sections, left_out = distinct(sections, whole=titled)
    listed = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    for note in [*notes, f"titles left out: {listed}"] if listed else notes:
        log.info("note: %s", note)
    if not distinct_sections:
        raise DataError(
            f"{source}: no text has a title, a heading or a question of three words or more, with "
            "a text below it that no other has"
        )
    rows = [
        (section.title, section.name, text, section.kind)
        for section in distinct_sections
        for text in section.lines
    ]
    names = ("query", "document_id", "document", "origin")
    table = pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], names)
    if not (titled and all(section.name for section in sections)):
        table = table.drop_columns("document_id")
    if path is not None:
        write_table(path, table)
    return table


def _sections(
    source: str, columns: Columns, encoding: str | None, skip_bad_rows: bool
) -> tuple[list[Section], bool, list[str]]:
    """Read the sections of a corpus; whether they are titled documents of a table; and notes."""
    place, notes = Path(source), list[str]()
    beir, is_python = place / "corpus.jsonl", source.startswith(PYTHON)
    files = [] if is_python or beir.is_file() else text_files(place)
    if {file.stem.upper() for file in files} == {"README"} and holds_tables(place):
        files = []  # it is about the tables
    for option, is_given in (
        ("--columns", columns.assignments),
        ("--skip-bad-rows", skip_bad_rows),
    ):
        if is_given and (is_python or files):
            raise SettingError(f"{option}: is for tables, and {source} is none")
    if is_python:
        sections, notes = python_sections(source.removeprefix(PYTHON))
        return sections, False, notes
    if files:
        rows = [(str(file), "", "".join(text_lines(file, encoding=encoding))) for file in files]
    else:
        table = str(beir) if beir.is_file() else source
        rows, notes = read_documents(table, columns, encoding, skip_bad_rows)
    titled = any(title.strip() for _, title, _ in rows)
    sections, without = list[Section](), list[str]()
    for name, title, text in rows:
        body = [text.removeprefix(title).strip()]
        by_title = (
            [Section(name, "", title, body, kind_of(title, "title"))] if title.strip() else []
        )
        of_text = by_title if titled else list(sections_of(text, name))
        sections += of_text
        without += [] if of_text else [name]
    if without:
        what = "title" if titled else "title, heading or question"
        first = f"; the first is {without[0]}" if without[0] else ""
        notes.append(
            f"{len(without):,} of {len(rows):,} texts have no {what}, and make no pair{first}"
        )
    return sections, titled, notes


TEXT_SUFFIXES = (".md", ".markdown", ".txt")
MOST_WORDS = 20
"""Of a question, or of a title without a mark; a longer line is text."""
PLAIN = 7
"""Level of a question that is no heading, below those of headings."""
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_ASKED, _ANSWERED = re.compile(r"(?:Q|Question)[:.]\s+"), re.compile(r"(?:A|Answer)[:.]\s+")


class Head(NamedTuple):
    """A heading: its level, its words, its line, and the first line below it."""

    level: int
    words: str
    line: int
    below: int


def text_files(place: Path) -> list[Path]:
    """Return the text files behind a file or a folder, in order; none that is hidden."""
    paths = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [
        file
        for file in paths
        if file.suffix.lower() in TEXT_SUFFIXES
        and not any(part.startswith(".") for part in file.relative_to(place).parts)
        and file.is_file()
    ]


def sections_of(text: str, name: str) -> Iterator[Section]:
    """Cut a text at its headings and questions; its first line is a title, if it stands alone.

    A heading of few words gets those above it in front.
    """
    lines = _FRONT_MATTER.sub("", text.replace("\r\n", "\n")).split("\n")
    above: list[tuple[int, str]] = []
    last = Head(0, "", len(lines), len(lines))
    for (level, words, _, first), after in pairwise([*_heads("\n".join(lines)), last]):
        above = [parent for parent in above if parent[0] < level]
        title = words
        for _, parent in reversed(above):
            title = f"{parent} {title}" if len(title.split()) < MIN_WORDS else title
        kind = kind_of(words, "heading" if above else "title")
        above.append((level, words))
        below = "\n".join(lines[first : after.line]).strip()
        yield Section(name, name, title, _ANSWERED.sub("", below, count=1).split("\n"), kind)


def _heads(text: str) -> Iterator[Head]:
    """Yield the headings and questions of a text; what stands in lists or code is none."""
    tokens = MarkdownIt().parse(text)
    for number, (opened, inline) in enumerate(pairwise(tokens)):
        if inline.type != "inline" or opened.level or not opened.map:
            continue
        (start, end), heading = opened.map, opened.type == "heading_open"
        parts = takewhile(lambda token: token.type != "softbreak", inline.children or ())
        words = _ASKED.sub("", "".join(token.content for token in parts).strip(), count=1)
        title = number == 0 and end == start + 1 and words[-1:].isalnum()
        if heading:
            yield Head(int(opened.tag[1]), words, start, end)
        elif len(words.split()) <= MOST_WORDS and (title or words.endswith("?")):
            yield Head(1 if title else PLAIN, words, start, start + 1)


def kind_of(title: str, kind: str) -> str:
    """Say what a title is: a question, or else of this kind."""
    return "question" if title.endswith("?") else kind
