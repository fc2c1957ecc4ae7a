"""Weak pairs from text with titles: a title is a query, and what stands below it its documents.

The text of a section is cut into chunks, so each query has several positives of uneven quality, as
in any chunked corpus. Of a data set, train and test come from different groups of sections, such as
files.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from operator import itemgetter

import numpy as np

from opera.core.errors import DataError
from opera.core.rng import generator
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.store import LAYOUT, DataBuilder, load_or_parse
from opera.data.texts import text_batches

CHUNK_CHARACTERS = 600
SHORTEST_CHUNK = 40
MIN_WORDS = 3
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Section:
    """A title and the lines below it.

    Attributes:
        name: the id of its query; those of its documents begin with it.
        group: where it stands, such as a file.
        title: the query.
        lines: what stands below it; of one that is read, its chunks that do not hold the title.
        kind: what the title is: a docstring, a title, a heading or a question.
    """

    name: str
    group: str
    title: str
    lines: Sequence[str]
    kind: str


def load_weak_pairs(
    source: str,
    sections: Iterable[Section],
    seed: int,
    limits: dict[str, int | None],
    notes: Sequence[str] = (),
    chunks: int | None = None,
) -> RetrievalData:
    """Make a data set of sections; those are left out that have no chunk or a title of few words.

    Args:
        source: what the user passed, ``KIND:NAME``.
        sections: read once.
        seed: of the draw of test groups, and of the sections to keep if there are limits.
        limits: how many queries ``train`` and ``test`` may have; the corpus holds the chunks of
            the kept ones.
        notes: for the user.
        chunks: how many a section keeps at most, its first ones.

    Raises:
        DataError: if there are too few groups.
    """
    kind, _, name = source.partition(":")
    sections = [replace(section, lines=section.lines[:chunks]) for section in distinct(sections)[0]]
    sizes = Counter(section.group for section in sections)
    if len(sizes) < 2:
        raise DataError(
            f"{source}: found {len(sections)} titles with text in {len(sizes)} files; at "
            "least 2 files are needed, because train and test come from different files"
            + "".join(f"; {note}" for note in notes)
        )
    testing = _test_groups(sizes, generator(seed, f"{kind}.modules"))
    splits = {}
    for split in ("train", "test"):
        part = [section for section in sections if (section.group in testing) == (split == "test")]
        splits[split] = _sample(part, limits[split], generator(seed, f"{kind}.{split}"))
    digest = hashlib.sha256(f"{LAYOUT}\0{kind}\0{name}".encode())
    for split, part in splits.items():
        digest.update(f"\0{split}".encode())
        for section in part:
            digest.update("\0".join((section.name, section.title, *section.lines)).encode())

    def parse(builder: DataBuilder) -> None:
        every = [section for part in splits.values() for section in part]
        docs = [
            (f"{section.name}#{number}", section.name, chunk)
            for section in every
            for number, chunk in enumerate(section.lines)
        ]
        builder.write_texts("corpus", text_batches(docs))
        builder.write_texts(
            "queries", text_batches((section.name, "", section.title) for section in every)
        )
        query = np.repeat(np.arange(len(every)), [len(section.lines) for section in every])
        doc, first_test = np.arange(len(docs)), len(splits["train"])
        for split, selected in (("train", query < first_test), ("test", query >= first_test)):
            ones = np.ones(selected.sum(), dtype=np.int32)
            builder.splits[split] = Qrels.from_arrays(query[selected], doc[selected], ones)

    data = load_or_parse(digest.hexdigest(), name, source, parse)
    return replace(data, notes=(*data.notes, *notes))


def distinct(
    sections: Iterable[Section], whole: bool = False
) -> tuple[list[Section], dict[str, int]]:
    """Cut sections into chunks that do not hold the title, or leave them whole. Equal names get a
    number.

    Returns:
        The sections, and how many were left out for which reason.
    """
    candidates, left_out = [], Counter[str]()
    for section in sections:
        title = _flat(section.title)
        chunks = [chunk for chunk in _chunks(section.lines) if title not in _flat(chunk)]
        if whole:
            chunks = [chunk for chunk in ["\n".join(section.lines)] if chunk.strip()]
        if len(title.split()) < MIN_WORDS:
            left_out[f"of fewer than {MIN_WORDS} words"] += 1
        elif not chunks:
            left_out["without a text"] += 1
        else:
            candidates.append(replace(section, title=title, lines=chunks))
    titles = Counter(section.title.casefold() for section in candidates)
    seen: Counter[str] = Counter()
    distinct_sections = []
    for section in candidates:
        if titles[section.title.casefold()] > 1:
            left_out["that several texts have"] += 1
        else:
            seen[section.name] += 1
            number = f"({seen[section.name]})" if seen[section.name] > 1 else ""
            distinct_sections.append(replace(section, name=f"{section.name}{number}"))
    return distinct_sections, dict(left_out)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _chunks(lines: Sequence[str]) -> list[str]:
    """Pack lines into chunks of ``CHUNK_CHARACTERS`` at most, ``SHORTEST_CHUNK`` at least."""
    chunks, longest = [""], CHUNK_CHARACTERS - 1
    for line in lines:
        for start in range(0, max(1, len(line)), longest):
            piece = line[start : start + longest] + "\n"
            if len(chunks[-1]) + len(piece) > CHUNK_CHARACTERS:
                chunks.append("")
            chunks[-1] += piece
    return [chunk.strip("\n") for chunk in chunks if len(chunk.strip()) >= SHORTEST_CHUNK]


def _test_groups(sizes: Counter[str], rng: np.random.Generator) -> set[str]:
    """Draw groups until they have a fifth of the sections; at least one is left for train."""
    groups = [sorted(sizes)[place] for place in rng.permutation(len(sizes))[:-1]]
    before = accumulate((sizes[group] for group in groups), initial=0)
    target = TEST_SHARE * sizes.total()
    return {group for group, drawn in zip(groups, before, strict=False) if drawn < target}


def _sample(items: list[Section], limit: int | None, rng: np.random.Generator) -> list[Section]:
    """Keep ``limit`` random sections, groups taking turns, so that none crowds out others."""
    if limit is None or len(items) <= limit:
        return items
    turns: dict[str, Iterator[int]] = defaultdict(count)
    order = [
        (next(turns[items[place].group]), place) for place in rng.permutation(len(items)).tolist()
    ]
    chosen = sorted(order, key=itemgetter(0))[:limit]  # of one turn in the order that was drawn
    return [items[place] for place in sorted(place for _, place in chosen)]
