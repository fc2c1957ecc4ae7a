"""Sections of texts: below the headings of Markdown, and below questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

from opera.data.weak_pairs import MIN_WORDS, Section

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
    found = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [
        file
        for file in found
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
        above = [own for own in above if own[0] < level]
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
    for at, (opened, inline) in enumerate(pairwise(tokens)):
        if inline.type != "inline" or opened.level or not opened.map:
            continue
        (start, end), heading = opened.map, opened.type == "heading_open"
        parts = takewhile(lambda own: own.type != "softbreak", inline.children or ())
        words = _ASKED.sub("", "".join(own.content for own in parts).strip(), count=1)
        title = at == 0 and end == start + 1 and words[-1:].isalnum()
        if heading:
            yield Head(int(opened.tag[1]), words, start, end)
        elif len(words.split()) <= MOST_WORDS and (title or words.endswith("?")):
            yield Head(1 if title else PLAIN, words, start, start + 1)


def kind_of(title: str, kind: str) -> str:
    """Say what a title is: a question, or else of this kind."""
    return "question" if title.endswith("?") else kind
