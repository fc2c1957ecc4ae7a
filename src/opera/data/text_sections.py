"""Sections of plain texts: Markdown's headings, underlined ones, and questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from opera.core.errors import DataError
from opera.core.reading import read_text
from opera.data.weak_pairs import MIN_WORDS, Section

TEXT_SUFFIXES = (".md", ".markdown", ".rst", ".txt")
MOST_WORDS = 20
"""Of a heading or a question; a longer line is text."""
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r" {0,3}(#{1,6}) +(.*?)[ #]*")
_UNDERLINE = re.compile(r"(=|-|~|\^|\*){3,} *")
_QUESTION, _ANSWER = re.compile(r"\W*(?:Q|Question)[:.]\W+(.*)"), re.compile(r"(?:A|Answer)[:.]\s+")
_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")


def text_files(place: Path) -> list[Path]:
    """Return the text files behind a file or a folder, in order; none that is hidden."""
    if not place.is_dir():
        return [place] if place.suffix.lower() in TEXT_SUFFIXES else []
    return sorted(
        file
        for file in place.rglob("*")
        if file.suffix.lower() in TEXT_SUFFIXES
        and not any(part.startswith(".") for part in file.relative_to(place).parts)
        and file.is_file()
    )


def file_sections(path: Path, name: str) -> list[Section]:
    """Read the sections of a file.

    Raises:
        DataError: if it cannot be read, or is not UTF-8.
    """
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        reason = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else error
        raise DataError(f"{path}: {reason}") from None
    return list(sections_of(text, name))


def sections_of(text: str, name: str) -> Iterator[Section]:
    """Cut a text at its headings and questions.

    A heading of few words gets those above it in front. What stands in a code block is no heading.
    """
    above: list[tuple[int, str]] = []
    title, kind, below = "", "", list[str]()
    for level, found, lines in _parts(_FRONT_MATTER.sub("", text.replace("\r\n", "\n"))):
        if title:
            yield Section(name, name, title, below, kind)
        above = [own for own in above if own[0] < level]
        title, below = found, lines
        for _, parent in reversed(above):
            title = f"{parent} {title}" if len(title.split()) < MIN_WORDS else title
        kind = kind_of(found, "heading" if above else "title")
        above.append((level, found))
    if title:
        yield Section(name, name, title, below, kind)


def kind_of(title: str, kind: str) -> str:
    """Say what a title is: a question, or else of this kind."""
    return "question" if title.endswith("?") else kind


def _parts(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield level and words of each heading, and the list that its lines will be in."""
    fence, before, skip, below = "", None, False, list[str]()
    for line, after in pairwise([*text.strip("\n").split("\n"), ""]):
        if opened := _FENCE.match(line):
            fence = "" if fence == opened[1] else fence or opened[1]
        level, words = (0, "") if fence or skip else _heading(line, before, after)
        if level and words:
            below = []
            yield level, words, below
        elif not skip:
            below.append(_ANSWER.sub("", line, count=1) if not below else line)
        skip = bool(level) and _UNDERLINE.fullmatch(after) is not None
        before = line


def _heading(line: str, before: str | None, after: str) -> tuple[int, str]:
    """Return level and words of a heading, 0 for a line that is none; the first line has none
    before it.
    """
    words = _LINK.sub(r"\1", line).strip(" *_`")
    if heading := _HEADING.fullmatch(line):
        return len(heading[1]), _LINK.sub(r"\1", heading[2]).replace("`", "").strip(" *_")
    alone = not (before or "").strip() or _UNDERLINE.fullmatch(before or "")
    if not words or len(words.split()) > MOST_WORDS or not alone:
        return 0, ""
    if underline := _UNDERLINE.fullmatch(after):
        return {"=": 7, "-": 8}.get(underline[1], 9), words
    if asked := _QUESTION.fullmatch(words):
        return 10, asked[1]
    if before is None and not after.strip() and words[-1].isalnum():
        return 1, words
    return (10, words) if words.endswith("?") else (0, "")
