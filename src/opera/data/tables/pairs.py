"""Pairs, in batches from any reader, become a data set: rows for their texts, qrels, negatives.

They are read once to number their texts, and once more to write those that are new. So no text
stays in memory, and of a pair only numbers do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.checks import MAX_GRADE
from opera.data.pairs import pair_keys
from opera.data.qrels import GivenNegatives, Qrels, TeacherScores
from opera.data.store import DataBuilder
from opera.data.tables.numbering import NOTHING, UNKNOWN, KnownTexts, NewTexts, Rows, Texts
from opera.data.tables.problems import Place, Places, Problems
from opera.data.texts import blank


@dataclass
class PairBatch:
    """Some rows of pairs.

    Attributes:
        query: the query of each row.
        document: the documents of the rows, in the order in which they are numbered.
        row: the row of each document: int64 ``[D]``.
        negative: whether each document is a negative: bool ``[D]``.
        split: number of the split of each row: int8.
        place: says where a row stands.
        grade: of each row, NaN where it has none: float64; ``None`` where no row has one.
        weight: like ``grade``.
        score: a teacher's, of each document, like ``grade``.
        broken: whether each row breaks a rule: bool; ``None``: none does.
    """

    query: Texts
    document: Texts
    row: Rows
    negative: BoolArray
    split: NDArray[np.int8]
    place: Place
    grade: NDArray[np.float64] | None = None
    weight: NDArray[np.float64] | None = None
    score: NDArray[np.float64] | None = None
    broken: BoolArray | None = None


Refuse = Callable[..., None]
"""Refuses rows, by their numbers: takes these, a rule, and what returns the first wrong value."""


@dataclass
class _Pairs:
    """Pairs: rows of query and document, split, numbers or NaN, and the row that was read."""

    query: NDArray[np.int32]
    doc: NDArray[np.int32]
    split: NDArray[np.int8]
    grade: NDArray[np.float32]
    weight: NDArray[np.float32]
    row: NDArray[np.int32]

    def take(self, which: BoolArray | Rows | slice) -> _Pairs:
        return _Pairs(*(own[which] for own in vars(self).values()))


class PairStore:
    """Stores pairs, and the texts that only they hold.

    Args:
        builder: holds the documents and queries that have tables of their own.
        name: of what is read, for messages.
        read: yields the pairs, as often as it is called, always in the same order; what it is
            given gets the rows that break a rule.
        splits: numbers of the splits by name; complete once ``read`` is through.
        lines: whether they are lines of BEIR or of another trainer: a pair has one grade, a whole
            number, and negatives stay in their order, of all splits. Else the highest grade counts.
        lenient: leave out empty texts and ids that are not there, for published data, which a user
            cannot correct.
        problems: what is wrong with the rows of all tables, and whether they are left out.
    """

    def __init__(
        self,
        builder: DataBuilder,
        name: str,
        read: Callable[[Problems], Iterator[PairBatch]],
        splits: dict[str, int],
        *,
        lines: bool = False,
        lenient: bool = False,
        problems: Problems | None = None,
    ) -> None:
        self._builder, self._name, self._read, self._splits = builder, name, read, splits
        self._lines, self._lenient = lines, lenient
        self._places = Places()
        self._problems = Problems() if problems is None else problems
        tables = builder.tables
        self._query = KnownTexts(tables["queries"]) if "queries" in tables else NewTexts("q")
        self._document = KnownTexts(tables["corpus"]) if "corpus" in tables else NewTexts("d")

    def store(self) -> None:
        """Store them all.

        Raises:
            DataError: naming file, line or row, rule and value of the first row that breaks each
                rule, and how many do.
        """
        pairs, negatives = self._numbered()
        if isinstance(self._query, NewTexts):
            queries = (batch.query for batch in self._read(Problems()))
            self._builder.write_texts("queries", self._query.rows(queries))
        if isinstance(self._document, NewTexts):
            documents = (batch.document for batch in self._read(Problems()))
            self._builder.write_texts("corpus", self._document.rows(documents))
        if self._lenient:
            pairs = self._without_empty(pairs)
        if self._lines:
            self._keep_places(pairs)
        pairs = pairs.take(np.lexsort((pairs.doc, pairs.query, pairs.split)))
        for name, split in self._splits.items():
            own = slice(*np.searchsorted(pairs.split, [split, split + 1]))
            self._builder.splits[name] = self._qrels(pairs.take(own), name)
        self._store_negatives(negatives)

    def _numbered(self) -> tuple[_Pairs, _Pairs]:
        """Read all batches; return the pairs and the negatives, and store a teacher's scores."""
        found = defaultdict[str, list[Any]](list)
        for batch in self._read(self._problems):
            self._query.add(batch.query)
            self._document.add(batch.document)
            found["row"].append((batch.row + len(self._places)).astype(np.int32))
            found["negative"].append(batch.negative)
            found["split"].append(batch.split)
            sizes = {"grade": len(batch.query), "weight": len(batch.query), "score": len(batch.row)}
            for name, size in sizes.items():
                values = np.full(size, np.nan) if (own := getattr(batch, name)) is None else own
                found[name].append(values.astype(np.float32))
            nothing = np.zeros(len(batch.query), dtype=bool)
            found["broken"].append(nothing if batch.broken is None else batch.broken)
            if self._lenient:
                found["no_query"].append(blank(batch.query.text))
                found["empty"].append(blank(batch.document.text))
            self._places.add(len(batch.query), batch.place)
        if not found:
            raise self._nothing_left()
        row, negative, split, grade, weight, score, broken, *blanks = map(
            np.concatenate, found.values()
        )
        found.clear()
        keep_queries = np.ones(len(self._places), dtype=bool)
        keep_documents = np.ones(len(row), dtype=bool)
        if self._lenient:
            no_query, empty = blanks
            answered = np.bincount(row[~(empty | negative)], minlength=len(keep_queries)) > 0
            keep_queries = answered & ~no_query
            keep_documents = ~empty & keep_queries[row]
            if left := int(empty.sum() + (no_query & answered).sum()):
                self._note(f"left out {left:,} empty texts and the pairs they are in")

        def refuse(rows: IntArray, rule: str, value: Callable[[], object] = str) -> None:
            self._problems.add(rows, self._places, rule, value)
            broken[rows] = True

        self._check_numbers(split, grade, weight, keep_queries & ~broken, refuse)
        relevant = ~(negative | (grade <= 0)[row] | (weight <= 0)[row])
        count = -1
        while count != (count := int(broken.sum())):  # what others leave behind may break a rule
            sides = [
                self._rows_of(kind, texts, keep, own, broken, refuse)
                for kind, texts, keep, own in (
                    ("query", self._query, keep_queries, np.arange(len(keep_queries))),
                    ("document", self._document, keep_documents, row),
                )
            ]
            query, doc = sides[0][row], sides[1]
            if not (self._lines or self._lenient):
                empty_rows = row[relevant & self._names_empty(query, doc)]
                no_text = "a relevant pair whose query or document has no text; give it one or "
                refuse(empty_rows, no_text + "remove the pair")
        self._problems.check()
        there = (query >= 0) & (doc >= 0)
        if not (there & ~negative).any():
            raise self._nothing_left(" with a text on both sides" if self._lenient else "")
        for plural, side in (("documents", self._document), ("queries", self._query)):
            if isinstance(side, NewTexts) and side.merged:
                alone = "differ from others in white space alone, and are one with them"
                self._note(f"{side.merged:,} {plural} {alone}")
        if self._problems.found:
            self._note(self._problems.note())
            self._builder.write_skipped(self._problems.left_out())
        if (scored := there & ~np.isnan(score)).any():
            scores = TeacherScores.from_arrays(query[scored], doc[scored], score[scored])
            self._builder.teacher = scores
            self._note(f"{len(scores):,} pairs have a score of a teacher")

        def of(which: BoolArray) -> _Pairs:
            of_row = row[which]
            rows = query[which].astype(np.int32), doc[which].astype(np.int32)
            return _Pairs(*rows, split[of_row], grade[of_row], weight[of_row], of_row)

        return of(there & ~negative), of(there & negative)

    def _nothing_left(self, more: str = "") -> DataError:
        nothing = DataError(f"{self._name}: has no pairs{more}")
        return self._problems.error() if self._problems.found else nothing

    def _rows_of(
        self,
        kind: str,
        texts: KnownTexts | NewTexts,
        keep: BoolArray,
        row: IntArray,
        broken: BoolArray,
        refuse: Refuse,
    ) -> Rows:
        """Number the texts of a side, and refuse ids without a text, and those with two."""
        out = broken[row]
        rows, values = texts.number(keep & ~out)
        rows[out] = NOTHING
        plural = "queries" if kind == "query" else f"{kind}s"

        def wrong(at: Rows, rule: str) -> None:
            refuse(row[at], rule, lambda: shown(values[int(at[0])].as_py()))

        unknown = np.flatnonzero(rows == UNKNOWN)
        if isinstance(texts, NewTexts):
            wrong(unknown, f"{kind} {{}} has no text in the files that were read")
            wrong(texts.clashing, f"{kind} {{}} has another text than before; give it its own id")
        elif self._lenient and len(unknown):
            such = "" if texts.by_text else f", such as {shown(values[int(unknown[0])].as_py())}"
            self._note(f"left out {len(unknown):,} judgements of {plural} that are not there{such}")
        else:
            what = f"the {kind} is no text" if texts.by_text else f"{kind} {{}} is no id"
            advice = "add it there, or remove such pairs"
            wrong(unknown, f"{what} in the table of {plural}; {advice}")
        if texts.by_text:
            self._note(f"the pairs hold the texts of {plural}, not their ids")
        return rows

    def _check_numbers(
        self,
        split: NDArray[np.int8],
        grade: NDArray[np.float32],
        weight: NDArray[np.float32],
        keep: BoolArray,
        refuse: Refuse,
    ) -> None:
        """Refuse the rows, of those to keep, with a wrong grade or weight."""
        fraction = keep & _fractional(grade)
        weighed = np.isin(split, np.unique(split[fraction]))  # these are weights, of any size
        between = f"grade must lie between -{MAX_GRADE} and {MAX_GRADE}, got {{}}"
        if not self._lines:
            between += "; counts, as of clicks, are weights: --columns weight=COLUMN"
        for wrong, rule, values in (
            (weight < 0, "weight must be 0 or more, got {}", weight),
            ((np.abs(grade) > MAX_GRADE) & (self._lines | ~weighed), between, grade),
            (fraction & self._lines, "grade must be a whole number, got {}", grade),
        ):
            at = np.flatnonzero(wrong & keep)
            refuse(at, rule, lambda at=at, values=values: f"{values[at[0]]:g}")

    def _keep_places(self, pairs: _Pairs) -> None:
        """Keep where the relevant pairs stand that name an empty text."""
        for at in np.flatnonzero(self._of_empty_texts(pairs)):
            pair = int(pairs.query[at]), int(pairs.doc[at])
            place = str(self._places(int(pairs.row[at])))
            self._builder.places[pair] = place.removeprefix(f"{self._name}/")

    def _of_empty_texts(self, pairs: _Pairs) -> BoolArray:
        """Whether each pair is relevant, and its query or document has no text."""
        empty = self._names_empty(pairs.query, pairs.doc)
        return np.asarray(empty & ~(pairs.grade <= 0) & ~(pairs.weight <= 0))

    def _names_empty(self, query: IntArray, doc: IntArray) -> BoolArray:
        """Whether each query or document has no text, of those that are stored by now."""
        empty = np.zeros(len(query), dtype=bool)
        for name, rows in (("queries", query), ("corpus", doc)):
            if name in self._builder.tables:
                empty |= np.isin(rows, self._builder.tables[name].empty_rows())
        return empty

    def _without_empty(self, pairs: _Pairs) -> _Pairs:
        """Leave out relevant pairs that name an empty text, counted by split."""
        empty, tables = self._of_empty_texts(pairs), self._builder.tables
        for name, split in self._splits.items():
            own = np.flatnonzero(empty & (pairs.split == split))
            if len(own):
                self._builder.left_out[name] = len(own)
                query = shown(tables["queries"].ids(pairs.query[own[:1]])[0])
                document = shown(tables["corpus"].ids(pairs.doc[own[:1]])[0])
                self._note(
                    f"{name}: left out {len(own):,} relevant pairs that name an empty text, "
                    f"such as query {query}, document {document}"
                )
        return pairs.take(~empty)

    def _qrels(self, pairs: _Pairs, name: str) -> Qrels:
        """Build the qrels of a split from its sorted pairs; repeated ones are merged."""
        n_pairs, query, doc = len(pairs.query), pairs.query, pairs.doc
        new = (query[1:] != query[:-1]) | (doc[1:] != doc[:-1])
        starts = np.flatnonzero(np.append(True, new)[:n_pairs])
        if self._lines:
            self._check_one_grade(pairs)
        grade = self._filled(pairs.grade, "grade", name)
        weight = self._filled(pairs.weight, "weight", name)
        if grade is not None and _fractional(grade).any():
            rule = (
                "say only which pairs are relevant" if weight is not None else "are read as weights"
            )
            self._note(f"{name}: grades with fractions {rule}: those above 0, with grade 1")
            weight = np.maximum(grade, 0) if weight is None else weight
            grade = (grade > 0).astype(np.float32)
        if merged := n_pairs - len(starts):
            rules = {"grades: the highest": grade, "weights: the sum": weight}
            how = ", ".join(rule for rule, values in rules.items() if values is not None)
            how = f" ({how})" if how and not self._lines else ""
            self._note(f"{name}: merged {merged:,} repeated pairs{how}")
        grades, weights = np.ones(len(starts), dtype=np.int32), None
        if grade is not None and n_pairs:
            # of lines, a judgement goes before a pair without one
            grades = np.nan_to_num(np.fmax.reduceat(grade, starts), nan=1).astype(np.int32)
        if weight is not None:
            weights = np.add.reduceat(weight, starts, dtype=np.float64).astype(np.float32)
            if dropped := int(((weights == 0) & (grades > 0)).sum()):
                self._note(f"{name}: {dropped:,} pairs of weight 0 are not relevant")
            grades = np.where(weights > 0, grades, np.minimum(grades, 0)).astype(np.int32)
        return Qrels.from_arrays(query[starts], doc[starts], grades, weights)

    def _filled(
        self, values: NDArray[np.float32], what: str, name: str
    ) -> NDArray[np.float32] | None:
        """Put 1 where the file of a pair has no such number; ``None`` where no pair has one."""
        missing = np.isnan(values)
        if missing.all():
            return None
        if missing.any() and not self._lines:
            count = f"{missing.sum():,} of {len(values):,} pairs have no {what} in their file"
            self._note(f"{name}: {count}: it is 1")
            return np.where(missing, np.float32(1), values)
        return values

    def _check_one_grade(self, pairs: _Pairs) -> None:
        """Refuse a pair with two grades."""
        judged = pairs.take(~np.isnan(pairs.grade))
        same = (judged.query[1:] == judged.query[:-1]) & (judged.doc[1:] == judged.doc[:-1])
        clash = np.flatnonzero(same & (judged.grade[1:] != judged.grade[:-1]))
        if len(clash):
            rows, grades = (own[clash[0] : clash[0] + 2] for own in (judged.row, judged.grade))
            before, place = map(self._places, rows.tolist())
            raise DataError(
                f"{place}: grade {grades[1]:g} for a pair that {before} gives grade {grades[0]:g}; "
                "a pair has one grade"
            )

    def _store_negatives(self, negatives: _Pairs) -> None:
        """Keep each negative of a query once, unless it is a relevant document of its query."""
        if not self._lines:
            of_train = negatives.split == self._splits.get("train", -1)
            if left := int((~of_train).sum()):
                self._note(f"{left:,} negatives of other splits than train are not used")
            negatives = negatives.take(of_train)
        if len(negatives.query) == 0:
            return
        splits = self._builder.splits
        relevant = [
            own.relevant().keys for name, own in splits.items() if self._lines or name == "train"
        ]
        keys, first = np.unique(pair_keys(negatives.query, negatives.doc), return_index=True)
        wrong = np.isin(keys, np.concatenate([np.empty(0, dtype=np.int64), *relevant]))
        if wrong.any():
            self._note(
                f"{int(wrong.sum()):,} negatives are also positives of their query and were "
                "dropped as negatives"
            )
        keys, first = keys[~wrong], first[~wrong]
        if len(keys):
            query, doc = negatives.query[first], negatives.doc[first]
            order = np.lexsort((first if self._lines else doc, query))
            counts = np.bincount(query, minlength=len(self._builder.tables["queries"]))
            offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            self._builder.given_negatives = GivenNegatives(offsets, doc[order].astype(np.int32))

    def _note(self, note: str) -> None:
        if note not in self._builder.notes:
            self._builder.notes.append(note)


def _fractional(grade: NDArray[np.float32]) -> BoolArray:
    """Whether each grade is there and no whole number."""
    return np.asarray(np.isfinite(grade) & (grade != np.floor(grade)))
