"""Find texts such as "n/a" and "-" that fill empty cells, and train like any other text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from opera.core.arrays import distinct_numbers
from opera.core.terminal import counted, shown
from opera.data.pairs import pair_keys, split_keys
from opera.data.retrieval_data import RetrievalData
from opera.data.source_rows import SourceRow, source_rows

WORDS = frozenset({"no answer", "not applicable", "nothing", "placeholder", "unknown"})
"""Placeholders of more than :data:`SHORT` characters."""
SHORT = 5
"""A repeated text of so many ASCII characters or fewer looks like a placeholder, such as ``test``.
Other scripts say more with fewer characters."""
LEAST_PAIRS = 3
"""A text in fewer pairs is not reported."""
LONGEST = 100
"""Texts of more bytes, with title and spaces, are not placeholders, so nobody reads them."""
MOST_ROWS = 1000
"""Pairs of a placeholder among which the first row of the file is looked up."""


@dataclass(frozen=True)
class Placeholder:
    """A text that looks like a placeholder.

    Attributes:
        role: ``query`` or ``document``.
        text: the text.
        pairs: the number of relevant pairs with this text and different other texts.
        file: the name of the user's table with the first of them; ``None`` if the data are not
            tables.
        line: its line or row there.
    """

    role: str
    text: str
    pairs: int
    file: str | None
    line: int | None

    @property
    def in_words(self) -> str:
        """The text, the number of pairs, and where the first is."""
        place = "" if self.file is None else f", the first at {self.file}:{self.line}"
        return f"the {self.role} {shown(self.text)} ({counted(self.pairs, 'pair')}{place})"


def find_placeholders(data: RetrievalData) -> list[Placeholder]:
    """Find short texts that occur in several relevant pairs with different texts."""
    splits = [qrels.relevant() for qrels in data.splits.values()]
    none = np.empty(0, dtype=np.int64)
    query_rows = np.concatenate([none, *(qrels.query_rows[qrels.query_index] for qrels in splits)])
    doc_rows = np.concatenate([none, *(qrels.doc_rows for qrels in splits)])
    query_groups, document_groups = data.query_group[query_rows], data.document_group[doc_rows]
    candidates = []
    for role, groups, others, table in (
        ("query", query_groups, document_groups, data.queries),
        ("document", document_groups, query_groups, data.corpus),
    ):
        distinct_pairs, _ = split_keys(distinct_numbers(pair_keys(groups, others)))
        repeated, counts = np.unique(distinct_pairs, return_counts=True)
        is_candidate = (counts >= LEAST_PAIRS) & (table.byte_lengths()[repeated] <= LONGEST)
        texts = table.texts(repeated[is_candidate])
        numbers = zip(repeated[is_candidate].tolist(), counts[is_candidate].tolist(), strict=True)
        for text, (group, count) in zip(texts, numbers, strict=True):
            if _is_placeholder(text):
                pairs = np.flatnonzero(groups == group)[:MOST_ROWS]
                candidates.append((role, text, count, pairs))
    if not candidates:
        return []
    pairs = np.concatenate([pairs for *_, pairs in candidates])
    rows = iter(source_rows(data, data.source, (query_rows[pairs], doc_rows[pairs])))
    placeholders = [
        Placeholder(role, text, count, *_first_row(islice(rows, len(pairs))))
        for role, text, count, pairs in candidates
    ]
    return sorted(placeholders, key=lambda placeholder: -placeholder.pairs)


def _is_placeholder(text: str) -> bool:
    short = text.strip().lower()
    return (0 < len(short) <= SHORT and short.isascii()) or short.strip(".!?<>()[]") in WORDS


def _first_row(
    rows_of_pairs: Iterable[SourceRow | None],
) -> tuple[str, int] | tuple[None, None]:
    """Return the file and the line of the first row."""
    rows = [row for row in rows_of_pairs if row is not None]
    if not rows:
        return None, None
    first: SourceRow = min((row for row in rows if row.file == rows[0].file), key=lambda r: r.line)
    return first.file, first.line


MOST_SHOWN = 3
"""Placeholders in a sentence."""


def placeholders_sentence(placeholders: Sequence[Placeholder]) -> str | None:
    """Say which texts look like placeholders, without the full stop; ``None`` if there are none."""
    if not placeholders:
        return None
    listed = [placeholder.in_words for placeholder in placeholders[:MOST_SHOWN]]
    if len(placeholders) > MOST_SHOWN:
        listed.append(f"{len(placeholders) - MOST_SHOWN:,} more")
    return (
        f"these texts look like placeholders: {', '.join(listed)}; delete their rows unless they "
        "are right, because OPERA trains on them"
    )
