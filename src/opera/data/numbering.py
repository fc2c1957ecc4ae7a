"""Turn the long relation into a data set: number the texts, and merge repeated pairs.

The SQL is in ``ingest.sql``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.arrays import is_among
from opera.core.errors import DataError
from opera.core.terminal import counted, shortened, shown
from opera.data.names import SPLIT_NAMES, DataName
from opera.data.pairs import pair_keys
from opera.data.qrels import DocumentLists, Qrels, TeacherScores
from opera.data.relation import STATEMENTS, Relation, id_rules, rules
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, load_or_parse

FILES = {"documents": "corpus", "queries": "queries"}
"""The names of the stored files of texts."""
SIDES = {"query": "queries", "document": "documents"}


def load_relation(
    key: str,
    name: str,
    source: DataName,
    read: Callable[[Relation, DataBuilder], None],
    **how: Any,
) -> RetrievalData:
    """Load data as :func:`load_or_parse`. If they are not stored, ``read`` fills a relation with
    the attributes ``how``.
    """

    def parse(builder: DataBuilder) -> None:
        with tempfile.TemporaryDirectory(dir=builder.folder) as folder:
            relation = Relation(Path(folder), **how)
            read(relation, builder)
            builder.notes += relation.notes
            relation.db.close()

    return load_or_parse(key, name, source, parse)


class NotInOrderError(Exception):
    """The texts are not in the order of their rows."""


def _in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield texts without their rows in the table, which must be 0, 1, ..."""
    next_row = 0
    for batch in batches:
        text_rows = np.from_dlpack(batch["text_row"])
        if not np.array_equal(text_rows, np.arange(next_row, next_row + len(text_rows))):
            raise NotInOrderError
        next_row += len(text_rows)
        yield batch.drop_columns("text_row")


class TextNumbering:
    """Numbers the texts of a relation, and writes texts and pairs.

    Args:
        relation: the complete relation.
        builder: stores the data.
        name: the name of the source, for messages.
    """

    def __init__(self, relation: Relation, builder: DataBuilder, name: str) -> None:
        self.relation, self.builder, self.name = relation, builder, name
        self.called_by: dict[str, str] = {}
        """How pairs call their texts, by side: see ``name_of`` in ``ingest.sql``."""

    def build(self, splits: Sequence[str] = ()) -> None:
        """Build the data set. Without ``splits``, they are in the order of their first pairs.

        Raises:
            DataError: for each broken rule, with file, line or row, rule and value of the first bad
                row, and the number of bad rows.
        """
        relation, problems = self.relation, self.relation.problems
        self._write_listed_texts()
        if relation.lenient:
            self._leave_out_empty_texts()
        relation.find_violations("pairs", rules(lenient=relation.lenient))
        relation.leave_out_broken()
        self._reject_two_names()
        in_order = relation.run("splits")
        for side, kind in SIDES.items():
            self._choose_names(side, kind)
        while self._number():  # rows that are left out may contain the texts of other rows
            relation.leave_out_broken()
        problems.check()
        if not relation.execute("FROM numbered WHERE NOT negative LIMIT 1").fetchall():
            text = " with a text on both sides" if relation.lenient else ""
            raise problems.error_or(f"{self.name}: has no pairs{text}")
        self._write_texts_of_pairs()
        if problems.rows_by_rule:
            relation.note(problems.note())
            self.builder.write_skipped(problems.left_out())
        self._store_teacher()
        if relation.lenient:
            self._leave_out_pairs_of_empty_texts()
        for split in splits or [split for (split,) in in_order]:
            self.builder.splits[split] = self._qrels(split)
        self._note_unused_splits()
        self._store_negatives()

    def _reject_two_names(self) -> None:
        """Reject two names of dev or test, such as ``dev`` and ``validation``.

        Files of texts, and some files of train, have no name of a split.
        """
        for split, names in self.relation.run("two names of a split"):
            raise DataError(
                f"{self.name}: the splits {' and '.join(map(shown, names))} both mean {split}; "
                "rename one of them, or leave it out"
            )

    def _write_listed_texts(self) -> None:
        """Check and write the tables of documents and queries."""
        relation, problems = self.relation, self.relation.problems
        relation.find_violations("texts", id_rules("id"))
        relation.leave_out_broken()
        for kind in sorted(relation.kinds):
            self._reject_repeated(kind)
        if relation.kinds:
            problems.check()  # otherwise each pair with the id of a bad row is another problem
        relation.leave_out_broken()
        for kind, name in sorted(relation.kinds.items()):
            ((n_rows, longest),) = relation.run("size of listed texts", kind=kind)
            if n_rows == 0:
                raise problems.error_or(f"{name}: is empty; it must have at least one row")
            batches = relation.batches(STATEMENTS["listed texts"], longest, kind=kind)
            self.builder.write_texts(FILES[kind], batches)
        relation.run("list texts")

    def _reject_repeated(self, kind: str) -> None:
        """Reject the rows whose id occurs in an earlier row."""
        repeated = self.relation.run("repeated ids", kind=kind)
        if repeated:
            table_number, table_row = repeated[0][-1]
            first_location = self.relation.files[table_number][0].location(table_row)
            rule = f"duplicate id {{}}; first seen at {first_location}, and ids must be unique"
            self.relation.add_violations([row[:-1] for row in repeated], "id", rule)

    def _leave_out_empty_texts(self) -> None:
        """Leave out empty documents, and the pairs of queries without a text or a positive."""
        self.relation.run("list answered rows")
        ((documents, queries),) = self.relation.run("count empty texts")
        self.relation.run("delete empty texts")
        if empty := documents + queries:
            self.relation.note(f"left out {counted(empty, 'empty text')} and their pairs")

    def _choose_names(self, side: str, kind: str) -> None:
        """Decide whether pairs call the texts of a side by id, by text, or have the texts."""
        relation, self.called_by[side] = self.relation, "pair"
        if kind in relation.kinds:
            by_id = relation.run("a pair with the id of a listed text", side=side)
            by_text = not by_id and relation.run("a pair with a listed text", side=side)
            self.called_by[side] = "text" if by_text else "id"
        relation.execute(f"SET VARIABLE {side}_by = '{self.called_by[side]}'")

    def _number(self) -> bool:
        """Number the texts of all pairs; return whether a row has an invalid id or empty text."""
        relation = self.relation
        relation.run("number")
        is_bad = [self._check_names(side) for side in SIDES]
        if not relation.lenient:
            empty = relation.run("relevant pairs of empty texts")
            rule = "a relevant pair has a query or document without a text; add it or remove "
            relation.add_violations(empty, "", f"{rule}the pair")
            is_bad.append(bool(empty))
        relation.run("delete unknown pairs")
        return any(is_bad)

    def _check_names(self, side: str) -> bool:
        """Reject the rows whose id has no text, or a different text than before.

        Published data get a note instead.
        """
        relation, kind, called_by = self.relation, SIDES[side], self.called_by[side]
        unknown, clashes = relation.run("pairs of unknown texts", side=side), []
        if relation.lenient and called_by != "pair":
            judgements = unknown if side == "document" else {row[:2] for row in unknown}
            if unknown:
                example = "" if called_by == "text" else f", such as {shown(unknown[0][2])}"
                count = counted(len(judgements), "judgement")
                relation.note(f"left out {count} of missing {kind}{example}")
            return False
        rules_of_names = {
            "pair": f"{side} {{}} has no text in these files",
            "text": f"the {side} is not a text in the table of {kind}",
            "id": f"{side} {{}} is not an id in the table of {kind}",
        }
        advice = "" if called_by == "pair" else "; add it to the table, or remove its pairs"
        relation.add_violations(unknown, side, rules_of_names[called_by] + advice)
        if called_by == "pair":
            clashes = relation.run("ids of two texts", side=side)
            rule = f"{side} {{}} has a different text than before; give each text its own id"
            relation.add_violations(clashes, side, rule)
        return bool(unknown or clashes)

    def _write_texts_of_pairs(self) -> None:
        """Write the texts that have no table."""
        for side, kind in reversed(SIDES.items()):
            if kind in self.relation.kinds:
                continue
            ((longest,),) = self.relation.run("longest text of pairs", side=side)
            for order in ("", " ORDER BY text_row"):  # sort only if needed, because it is slow
                texts = STATEMENTS["texts of pairs"].rstrip("; \n") + order
                batches = self.relation.batches(texts, longest, side=side)
                with batches, suppress(NotInOrderError):
                    self.builder.write_texts(FILES[kind], _in_order(batches))
                    break

    def _arrays(self, name: str, **values: Any) -> list[NDArray[Any]]:
        """The columns of the result of a statement of ``ingest.sql``."""
        columns = self.relation.execute(STATEMENTS[name], values).fetchnumpy()
        return [np.ma.filled(column, np.nan) for column in columns.values()]

    def _store_teacher(self) -> None:
        query_rows, doc_rows, scores = self._arrays("teacher")
        if len(scores):
            self.builder.teacher = TeacherScores.from_arrays(query_rows, doc_rows, scores)

    def _leave_out_pairs_of_empty_texts(self) -> None:
        """Leave out relevant pairs with an empty text, and count them by split."""
        tables = self.builder.tables
        for split, count, query_row, doc_row in self.relation.run("count pairs of empty texts"):
            self.relation.note(
                f"{split}: left out {counted(count, 'relevant pair')} with an empty text, such as "
                f"query {shown(tables['queries'].ids(np.array([query_row]))[0])}, "
                f"document {shown(tables['corpus'].ids(np.array([doc_row]))[0])}"
            )
        self.relation.run("delete pairs of empty texts")

    def _qrels(self, split: str) -> Qrels:
        """Build the qrels of a split, and merge repeated pairs."""
        note = self.relation.note
        ((pairs, graded, weighted, fractions),) = self.relation.run("count numbers", split=split)
        for name, count in (("grade", graded), ("weight", weighted)):
            if 0 < count < pairs:
                note(f"{split}: {pairs - count:,} of {pairs:,} pairs have no {name}; it becomes 1")
        if fractions:
            use = "are ignored" if weighted else "become weights"
            note(f"{split}: grades with fractions {use}; pairs above 0 are relevant, with grade 1")
        query_rows, doc_rows, grades, weights = self._arrays(
            "merged pairs", split=split, weighted=bool(weighted), fractions=fractions
        )
        if merged := pairs - len(query_rows):
            note(f"{split}: merged {counted(merged, 'repeated pair')}")
        has_weights = weighted or fractions
        return Qrels.from_arrays(query_rows, doc_rows, grades, weights if has_weights else None)

    def _note_unused_splits(self) -> None:
        """Note the splits whose names OPERA does not know, as in BEIR folders and on the hub."""
        unused = [split for split in self.builder.splits if split not in SPLIT_NAMES.values()]
        if unused:
            names = shortened(", ".join(map(shown, unused)))
            self.relation.note(
                f"a run uses only splits named {', '.join(SPLIT_NAMES)}, and not {names}"
            )

    def _store_negatives(self) -> None:
        """Store each negative of a query once, unless the document is relevant to the query."""
        query_rows, doc_rows, _ = self._arrays("negatives")
        if len(query_rows) == 0:
            return
        relevant = self.builder.splits["train"].relevant()
        valid = ~is_among(pair_keys(query_rows, doc_rows), relevant.keys)
        if not valid.all():
            dropped = counted(int((~valid).sum()), "negative")
            self.relation.note(f"dropped {dropped} that the same query has as positives")
        if valid.any():
            counts = np.bincount(query_rows[valid], minlength=len(self.builder.tables["queries"]))
            self.builder.given_negatives = DocumentLists.from_counts(counts, doc_rows[valid])
