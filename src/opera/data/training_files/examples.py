"""Lines of query, positives and negatives become tables: texts on disk, judgements and scores as arrays."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.pairs import pair_keys
from opera.data.qrels import GivenNegatives, Qrels
from opera.data.store import DataBuilder
from opera.data.teacher import TeacherScores
from opera.data.texts import TextRow, join_title

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows of queries and of documents."""


class Passage(NamedTuple):
    """A document of a line.

    Attributes:
        identifier: its id, ``None`` in a format without ids: equal texts are then one document.
        title: its title, or an empty text.
        text: its text; ``None`` where a corpus file has it.
        score: a teacher's score of it for the line's query.
    """

    identifier: str | None
    title: str
    text: str | None
    score: float | None = None


@dataclass(frozen=True)
class Example:
    """A line of a training file.

    Attributes:
        place: file and line.
        split: of the file.
        query_id: ``None`` in a format without ids.
        query: its text.
        prompt: what the line puts before its query; empty for nothing.
        positives: relevant documents.
        negatives: documents that are not.
    """

    place: str
    split: str
    query_id: str | None
    query: str
    prompt: str
    positives: Sequence[Passage]
    negatives: Sequence[Passage]


class _Numbered:
    """Texts with ids, numbered in order of first appearance; of each text only a digest stays in memory."""

    def __init__(self, kind: str, letter: str) -> None:
        self.kind, self.letter = kind, letter
        self.new: list[TextRow] = []
        self._row_of_id: dict[str, int] = {}
        self._row_of_text: dict[bytes, int] = {}
        self._made_up: set[int] = set()
        self._digests: list[bytes] = []

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, place: str, identifier: str | None, title: str, text: str) -> int:
        """Return the row of a text, a new one if it was not there.

        Raises:
            DataError: for an id that had another text.
        """
        digest = blake2b(join_title(title, text).encode(), digest_size=16).digest()
        row = (
            self._row_of_text.get(digest) if identifier is None else self._row_of_id.get(identifier)
        )
        if row is None:
            row = len(self)
            if identifier is None:
                identifier = self._free_id(row)
                self._made_up.add(row)
            self._row_of_id[identifier] = row
            self._row_of_text.setdefault(digest, row)
            self._digests.append(digest)
            self.new.append((identifier, title, text))
        elif self._digests[row] != digest:
            raise DataError(
                f"{place}: {self.kind} {shown(identifier)} has another text than before; give it its own id"
            )
        return row

    def find(self, place: str, identifier: str) -> int:
        """Return the row of an id that the files have; one that was made up for a text without an id is none.

        Raises:
            DataError: if there is none.
        """
        row = self._row_of_id.get(identifier)
        if row is None or row in self._made_up:
            raise DataError(
                f"{place}: {self.kind} {shown(identifier)} has no text in the files that were read"
            )
        return row

    def _free_id(self, row: int) -> str:
        identifier = f"{self.letter}{row}"
        while identifier in self._row_of_id:
            identifier += "-"
        return identifier


class ExampleStore:
    """Collects the texts and judgements of all files."""

    def __init__(self) -> None:
        self.documents, self.queries = _Numbered("document", "d"), _Numbered("query", "q")
        self.unused: set[str] = set()
        self._positives = defaultdict[str, tuple["array[int]", "array[int]"]](
            lambda: (array("i"), array("i"))
        )
        self._judged = defaultdict[str, dict[tuple[int, int], int]](dict)
        self._repeated = 0
        self._negatives = array("i"), array("i")
        self._scored, self._scores = (array("i"), array("i")), array("f")
        self._prompts: dict[str, None] = {}
        self._lines = 0

    def rows(self, reading: Iterable[object]) -> Iterator[TextRow]:
        """Yield the new documents of each record that ``reading`` adds to this store."""
        for _ in reading:
            yield from self.documents.new
            self.documents.new.clear()

    def add(self, example: Example) -> None:
        """Add a line.

        Raises:
            DataError: for an id with two texts, or without one.
        """
        self._lines += 1
        self._prompts[example.prompt] = None
        query = self.queries.add(example.place, example.query_id, "", example.query)
        for passages, pairs in (
            (example.positives, self._positives[example.split]),
            (example.negatives, self._negatives),
        ):
            for identifier, title, text, score in passages:
                if text is None:
                    document = self.documents.find(example.place, identifier or "")
                else:
                    document = self.documents.add(example.place, identifier, title, text)
                pairs[0].append(query)
                pairs[1].append(document)
                if score is not None:
                    self._scored[0].append(query)
                    self._scored[1].append(document)
                    self._scores.append(score)

    def judge(self, split: str, place: str, query_id: str, document_id: str, grade: int) -> None:
        """Add a judgement by ids.

        Raises:
            DataError: for an id without a text, and for a pair that had another grade.
        """
        pair, judged = (
            (self.queries.find(place, query_id), self.documents.find(place, document_id)),
            self._judged[split],
        )
        self._repeated += pair in judged
        if (before := judged.setdefault(pair, grade)) != grade:
            raise DataError(
                f"{place}: grade {grade} for a pair that had the grade {before} before; a pair has one grade"
            )

    def store(self, builder: DataBuilder) -> None:
        """Write queries, splits, negatives and scores; the corpus is written before, from :meth:`rows`."""
        builder.write_texts("queries", self.queries.new)
        lines_queries = {query for queries, _ in self._positives.values() for query in queries}
        for split in sorted({*self._positives, *self._judged}, key=("train", "dev", "test").index):
            builder.splits[split] = self._qrels(split)
        self._store_negatives(builder)
        if len(self._scores):
            builder.teacher = TeacherScores.from_arrays(
                np.asarray(self._scored[0]), np.asarray(self._scored[1]), np.asarray(self._scores)
            )
            builder.notes.append(f"{len(builder.teacher):,} pairs have a score of a teacher")
        if self._lines > len(lines_queries):
            builder.notes.append(
                f"merged {self._lines - len(lines_queries)} lines with a repeated query"
            )
        if self._repeated:
            builder.notes.append(f"merged {self._repeated:,} repeated judgements")
        if self.unused:
            builder.notes.append(f"unused columns: {shortened(', '.join(sorted(self.unused)))}")
        self._note_shared(builder)
        self._store_prompt(builder)

    def _qrels(self, split: str) -> Qrels:
        query, document = _distinct(*map(np.asarray, self._positives[split]))
        judged = np.array(
            [(*pair, grade) for pair, grade in self._judged[split].items()], dtype=np.int64
        ).reshape(-1, 3)
        unjudged = ~np.isin(pair_keys(query, document), pair_keys(judged[:, 0], judged[:, 1]))
        return Qrels.from_arrays(
            np.concatenate([judged[:, 0], query[unjudged]]),
            np.concatenate([judged[:, 1], document[unjudged]]),
            np.concatenate([judged[:, 2], np.ones(int(unjudged.sum()), dtype=np.int64)]),
        )

    def _store_negatives(self, builder: DataBuilder) -> None:
        """Keep each negative of a query once, in order, unless it is a positive of its query."""
        query, document = _distinct(*map(np.asarray, self._negatives))
        relevant = [qrels.relevant() for qrels in builder.splits.values()]
        positives = np.concatenate([qrels.keys for qrels in relevant])
        both = np.isin(pair_keys(query, document), positives)
        if both.any():
            count = int(both.sum())
            builder.notes.append(
                f"{count} negatives are also positives of their query and were dropped as negatives"
            )
        query, document = query[~both], document[~both]
        if len(query):
            order = np.argsort(query, kind="stable")
            offsets = np.concatenate(
                [[0], np.cumsum(np.bincount(query, minlength=len(self.queries)))]
            )
            builder.given_negatives = GivenNegatives(
                offsets.astype(np.int64), document[order].astype(np.int32)
            )

    def _note_shared(self, builder: DataBuilder) -> None:
        train = builder.splits.get("train")
        for split, qrels in builder.splits.items():
            if train is not None and split != "train":
                shared = int(np.isin(qrels.query_rows, train.query_rows).sum())
                if shared:
                    builder.notes.append(
                        f"{shared} of the {qrels.n_queries} queries of {split} are in train too"
                    )

    def _store_prompt(self, builder: DataBuilder) -> None:
        """Keep the prompt that all lines share."""
        prompts = list(self._prompts)
        if prompts in ([], [""]):
            return
        if len(prompts) == 1:
            builder.query_prompt = prompts[0]
            builder.notes.append(
                f"every line has the prompt {shown(prompts[0])}: it goes before each query, unless query_prompt says "
                "otherwise"
            )
            return
        named = " and ".join(shown(prompt) for prompt in prompts[:2])
        builder.notes.append(
            f"the lines have {len(prompts)} different prompts, such as {named}: none is used; give one for all with "
            "query_prompt, or write them into the queries"
        )


def _distinct(query: NDArray[np.integer], document: NDArray[np.integer]) -> Pairs:
    """Keep the first of equal pairs, in their order."""
    first = np.sort(np.unique(pair_keys(query, document), return_index=True)[1])
    return query[first].astype(np.int64), document[first].astype(np.int64)
