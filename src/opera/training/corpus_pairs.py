"""``opera.pairs``: make a training table of weak pairs from a corpus without labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from pathlib import Path

import pyarrow as pa
from markdown_it import MarkdownIt

from opera.config.arguments import checked_output, write_table
from opera.core.arguments import expand_user, flag
from opera.core.errors import DataError, SettingError
from opera.core.terminal import log
from opera.data.add_tables import read_documents
from opera.data.columns import Columns, parse_columns
from opera.data.python_source import python_sections
from opera.data.table_files import holds_tables
from opera.data.text_files import checked_encoding, text_lines
from opera.data.weak_pairs import MIN_WORDS, Section, distinct

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
    """Make weak training pairs from a corpus without labels.

    The pairs are title and body, heading and section, question and answer, or docstring and code.
    Titles with fewer than three words, without a text, or with several texts are left out.

    Args:
        corpus: a BEIR folder, or its ``corpus.jsonl``; a table of documents (CSV, TSV, JSON Lines,
            Parquet, Arrow), with titles or with headings in the texts; a folder of Markdown or
            plain texts; or ``python:PACKAGE``.
        out: output file, optional: ``.csv``, ``.parquet`` or ``.jsonl``.
        columns: the columns of a table by role: ``id``, ``title``, ``text``.
        encoding: encoding of text files, by its Python name, such as ``cp1252``; ``None``: UTF-8.
        skip_bad_rows: leave out the rows of a table that break a rule, with a note.
        overwrite: replace ``out`` if it exists.

    Returns:
        A row per pair: ``query``; ``document_id`` if the corpus has ids and titles; ``document``,
        without the title; and ``origin``: ``title``, ``heading``, ``question`` or ``docstring``.

    Raises:
        InputError: for invalid input, or a corpus without such pairs.

    Examples:
        >>> table = opera.pairs("python:email", out="weak.csv")
        >>> table.column_names
        ['query', 'document', 'origin']
    """
    source = expand_user(corpus, "corpus")
    path = checked_output(out, (".csv", ".parquet", ".jsonl"), overwrite, source, [Path(source)])
    roles, skip = Columns(parse_columns(columns)), flag(skip_bad_rows, "skip_bad_rows")
    sections, titled, notes = _sections(source, roles, checked_encoding(encoding), skip)
    distinct_sections, left_out = distinct(sections, full_text=titled)
    listed = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    for note in [*notes, f"titles left out: {listed}"] if listed else notes:
        log.info("note: %s", note)
    if not distinct_sections:
        raise DataError(
            f"{source}: no text has a unique title, heading or question of at least three words "
            "with a text below it"
        )
    rows = [
        (section.title, section.name, text, section.kind)
        for section in distinct_sections
        for text in section.lines
    ]
    table = pa.table(
        [pa.array(column, pa.string()) for column in zip(*rows, strict=True)],
        ("query", "document_id", "document", "origin"),
    )
    if not (titled and all(section.name for section in sections)):
        table = table.drop_columns("document_id")
    if path is not None:
        write_table(path, table)
    return table


def _sections(
    source: str, columns: Columns, encoding: str | None, skip_bad_rows: bool
) -> tuple[list[Section], bool, list[str]]:
    """Return the sections of a corpus, whether its documents have titles, and notes."""
    path, notes = Path(source), list[str]()
    beir, is_python = path / "corpus.jsonl", source.startswith(PYTHON)
    files = [] if is_python or beir.is_file() else text_files(path)
    if {file.stem.upper() for file in files} == {"README"} and holds_tables(path):
        files = []  # the README describes the tables
    for option, is_given in (
        ("--columns", columns.assignments),
        ("--skip-bad-rows", skip_bad_rows),
    ):
        if is_given and (is_python or files):
            raise SettingError(f"{option}: applies only to tables, not to {source}")
    if is_python:
        sections, notes = python_sections(source.removeprefix(PYTHON))
        return sections, False, notes
    if files:
        rows = [(str(file), "", "".join(text_lines(file, encoding=encoding))) for file in files]
    else:
        table = str(beir) if beir.is_file() else source
        rows, notes = read_documents(table, columns, encoding, skip_bad_rows)
    titled = any(title.strip() for _, title, _ in rows)
    sections, untitled = list[Section](), list[str]()
    for name, title, text in rows:
        body = [text.removeprefix(title).strip()]
        by_title = (
            [Section(name, "", title, body, kind_of(title, "title"))] if title.strip() else []
        )
        of_text = by_title if titled else list(sections_of(text, name))
        sections += of_text
        untitled += [] if of_text else [name]
    if untitled:
        missing = "title" if titled else "title, heading or question"
        example = f"; the first is {untitled[0]}" if untitled[0] else ""
        notes.append(
            f"left out {len(untitled):,} of {len(rows):,} texts without a {missing}{example}"
        )
    return sections, titled, notes


TEXT_SUFFIXES = (".md", ".markdown", ".txt")
MOST_WORDS = 20
"""Words of the longest question, or of the longest title that is not a heading."""
PLAIN = 7
"""The level of a question that is not a heading. Headings have the levels 1 to 6."""
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_ASKED, _ANSWERED = re.compile(r"(?:Q|Question)[:.]\s+"), re.compile(r"(?:A|Answer)[:.]\s+")


Head = tuple[int, str, int, int]
"""A heading: level, words, line, and the first line below it."""


def text_files(path: Path) -> list[Path]:
    """Return a text file, or the text files in a folder, sorted and without hidden files."""
    paths = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [
        file
        for file in paths
        if file.suffix.lower() in TEXT_SUFFIXES
        and not any(name.startswith(".") for name in file.relative_to(path).parts)
        and file.is_file()
    ]


def sections_of(text: str, name: str) -> Iterator[Section]:
    """Cut a text at its headings and questions. A single first line is a title.

    A short heading gets the headings above it as a prefix.
    """
    lines = _FRONT_MATTER.sub("", text.replace("\r\n", "\n")).split("\n")
    above: list[tuple[int, str]] = []
    last = 0, "", len(lines), len(lines)
    for (level, words, _, start), (*_, end, _) in pairwise([*_heads("\n".join(lines)), last]):
        above = [parent for parent in above if parent[0] < level]
        title = words
        for _, parent in reversed(above):
            title = f"{parent} {title}" if len(title.split()) < MIN_WORDS else title
        kind = kind_of(words, "heading" if above else "title")
        above.append((level, words))
        below = "\n".join(lines[start:end]).strip()
        yield Section(name, name, title, _ANSWERED.sub("", below, count=1).split("\n"), kind)


def _heads(text: str) -> Iterator[Head]:
    """Yield the headings and questions of a text, but not those in lists or code."""
    for number, (opened, inline) in enumerate(pairwise(MarkdownIt().parse(text))):
        if inline.type != "inline" or opened.level or not opened.map:
            continue
        (start, end), heading = opened.map, opened.type == "heading_open"
        parts = takewhile(lambda token: token.type != "softbreak", inline.children or ())
        words = _ASKED.sub("", "".join(token.content for token in parts).strip(), count=1)
        title = number == 0 and end == start + 1 and words[-1:].isalnum()
        if heading:
            yield int(opened.tag[1]), words, start, end
        elif len(words.split()) <= MOST_WORDS and (title or words.endswith("?")):
            yield 1 if title else PLAIN, words, start, start + 1


def kind_of(title: str, kind: str) -> str:
    """Return ``question`` for a question, and ``kind`` for other titles."""
    return "question" if title.endswith("?") else kind
