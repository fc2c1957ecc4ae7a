"""Make weak pairs from sections: a title is a query, and chunks of its text are its documents.

So a query has several positives of uneven quality, as in any chunked corpus. Train and test come
from different groups of sections, such as files.
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
from opera.core.terminal import counted
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, load_or_parse
from opera.data.texts import text_batches, without_extra_space

CHUNK_CHARACTERS = 600
SHORTEST_CHUNK = 40
MIN_WORDS = 3
TEST_FRACTION = 0.2


@dataclass(frozen=True)
class Section:
    """A title and the lines below it.

    Attributes:
        name: the id of the query. The ids of its documents begin with it.
        group: its source, such as a file.
        title: the query.
        lines: the lines below the title, or the chunks of :func:`distinct`.
        kind: the kind of title: a docstring, a title, a heading or a question.
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
    """Make a data set of sections; leave out sections without a chunk or with a short title.

    Args:
        source: the user's argument, ``KIND:NAME``.
        sections: the sections.
        seed: the seed that selects test groups, and sections if there are limits.
        limits: the maximum number of queries in ``train`` and ``test``. The corpus has only the
            chunks of selected queries.
        notes: notes for the user.
        chunks: the maximum number of chunks of a section; later chunks are dropped.

    Raises:
        DataError: if there are too few groups.
    """
    kind, _, name = source.partition(":")
    sections = [replace(section, lines=section.lines[:chunks]) for section in distinct(sections)[0]]
    sizes = Counter(section.group for section in sections)
    if len(sizes) < 2:
        raise DataError(
            f"{source}: has {counted(len(sections), 'title')} with text in "
            f"{counted(len(sizes), 'file')}; OPERA needs at least 2 files, because train and test "
            "come from different files" + "".join(f"; {note}" for note in notes)
        )
    testing = _test_groups(sizes, generator(seed, f"{kind}.modules"))
    splits = {}
    for split in ("train", "test"):
        candidates = [
            section for section in sections if (section.group in testing) == (split == "test")
        ]
        splits[split] = _sample(candidates, limits[split], generator(seed, f"{kind}.{split}"))
    digest = hashlib.sha256(f"{kind}\0{name}".encode())
    for split, sections_of_split in splits.items():
        digest.update(f"\0{split}".encode())
        for section in sections_of_split:
            digest.update("\0".join((section.name, section.title, *section.lines)).encode())

    def parse(builder: DataBuilder) -> None:
        selected = [
            section for sections_of_split in splits.values() for section in sections_of_split
        ]
        docs = [
            (f"{section.name}#{number}", section.name, chunk)
            for section in selected
            for number, chunk in enumerate(section.lines)
        ]
        builder.write_texts("corpus", text_batches(docs))
        builder.write_texts(
            "queries", text_batches((section.name, "", section.title) for section in selected)
        )
        query_rows = np.repeat(
            np.arange(len(selected)), [len(section.lines) for section in selected]
        )
        doc_rows, first_test_row = np.arange(len(docs)), len(splits["train"])
        for split, in_split in (
            ("train", query_rows < first_test_row),
            ("test", query_rows >= first_test_row),
        ):
            ones = np.ones(in_split.sum(), dtype=np.int32)
            builder.splits[split] = Qrels.from_arrays(
                query_rows[in_split], doc_rows[in_split], ones
            )

    data = load_or_parse(digest.hexdigest(), name, source, parse)
    return replace(data, notes=(*data.notes, *notes))


def distinct(
    sections: Iterable[Section], full_text: bool = False
) -> tuple[list[Section], dict[str, int]]:
    """Cut sections into chunks without the title, or keep their full text. Number equal names.

    Returns:
        The sections, and the number of skipped titles by reason.
    """
    candidates, left_out = [], Counter[str]()
    for section in sections:
        title = without_extra_space(section.title)
        chunks = [
            chunk for chunk in _chunks(section.lines) if title not in without_extra_space(chunk)
        ]
        if full_text:
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
            left_out["of several texts"] += 1
        else:
            seen[section.name] += 1
            number = f"({seen[section.name]})" if seen[section.name] > 1 else ""
            distinct_sections.append(replace(section, name=f"{section.name}{number}"))
    return distinct_sections, dict(left_out)


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
    """Choose random groups with a fifth of the sections; leave at least one group for train."""
    groups = [sorted(sizes)[position] for position in rng.permutation(len(sizes))[:-1]]
    totals = accumulate((sizes[group] for group in groups), initial=0)
    target = TEST_FRACTION * sizes.total()
    return {group for group, total in zip(groups, totals, strict=False) if total < target}


def _sample(items: list[Section], limit: int | None, rng: np.random.Generator) -> list[Section]:
    """Choose ``limit`` random sections. The groups take turns, so large groups do not dominate."""
    if limit is None or len(items) <= limit:
        return items
    turns: dict[str, Iterator[int]] = defaultdict(count)
    order = [
        (next(turns[items[position].group]), position)
        for position in rng.permutation(len(items)).tolist()
    ]
    chosen = sorted(order, key=itemgetter(0))[:limit]  # stable: random order within a turn
    return [items[position] for position in sorted(position for _, position in chosen)]
