"""Turn the long relation into a data set: number the texts, and merge repeated pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.terminal import counted, shown
from opera.data.pairs import pair_keys
from opera.data.qrels import DocumentLists, Qrels, TeacherScores
from opera.data.relation import NUMBERS, PLACE, Relation, text_key_sql
from opera.data.retrieval_data import RetrievalData
from opera.data.rules import Rule, blank_sql, id_rules, literal_sql, number_sql, rules
from opera.data.store import DataBuilder, load_or_parse

RELEVANT = "NOT negative AND coalesce(grade, 1) > 0 AND coalesce(weight, 1) > 0"
FILES = {"documents": "corpus", "queries": "queries"}
"""The names of the stored files of texts."""
SIDES = {"query": "queries", "document": "documents"}


def load_relation(
    key: str, name: str, source: str, read: Callable[[Relation, DataBuilder], None], **how: Any
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
    """The texts are not in the order of their numbers."""


def _in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield texts without their numbers. The numbers must be 0, 1, ..."""
    first = 0
    for batch in batches:
        numbers = np.from_dlpack(batch["number"])
        if not np.array_equal(numbers, np.arange(first, first + len(numbers))):
            raise NotInOrderError
        first += len(numbers)
        yield batch.drop_columns("number")


class TextNumbering:
    """Numbers the texts of a relation, and writes texts and pairs.

    Args:
        relation: the complete relation.
        builder: stores the data.
        name: the name of the source, for messages.
    """

    def __init__(self, relation: Relation, builder: DataBuilder, name: str) -> None:
        self.relation, self.builder, self.name = relation, builder, name
        self.by_text, self.has_ids = dict[str, bool](), dict[str, bool]()

    def build(self, splits: Sequence[str] = ()) -> None:
        """Build the data set. Without ``splits``, they are in the order of their first pairs.

        Raises:
            DataError: for each broken rule, with file, line or row, rule and value of the first bad
                row, and the number of bad rows.
        """
        relation, problems = self.relation, self.relation.problems
        self._write_known_texts()
        if relation.lenient:
            self._leave_out_empty()
        relation.break_rules("pairs", rules(lenient=relation.lenient))
        relation.leave_out_broken()
        self._reject_two_names()
        in_order = relation.rows("SELECT split FROM pairs GROUP BY split ORDER BY min(rowid)")
        while self._number():  # rows that are left out may contain the texts of other rows
            relation.leave_out_broken()
        problems.check()
        if not relation.rows("FROM numbered WHERE NOT negative LIMIT 1"):
            text = " with a text on both sides" if relation.lenient else ""
            raise problems.error_or(f"{self.name}: has no pairs{text}")
        self._write_new_texts()
        if problems.rows:
            relation.note(problems.note())
            self.builder.write_skipped(problems.left_out())
        self._store_teacher()
        if relation.lenient:
            self._leave_out_pairs_of_empty_texts()
        for split in splits or [split for (split,) in in_order]:
            self.builder.splits[split] = self._qrels(split)
        self._store_negatives()

    def _reject_two_names(self) -> None:
        """Reject two names of dev or test, such as ``dev`` and ``validation``.

        Files of texts, and some files of train, have no name of a split.
        """
        for split, names in self.relation.rows(
            """SELECT split, list_sort(list(DISTINCT split_name)) AS names FROM pairs
            WHERE split != 'train' AND split_name IS NOT NULL GROUP BY split
            HAVING len(names) > 1"""
        ):
            raise DataError(
                f"{self.name}: the splits {' and '.join(map(shown, names))} both mean {split}; "
                "rename one of them, or leave it out"
            )

    def _write_known_texts(self) -> None:
        """Check and write the tables of documents and queries."""
        relation, problems = self.relation, self.relation.problems
        relation.break_rules("texts", id_rules("id"))
        relation.leave_out_broken()
        for kind in sorted(relation.kinds):
            self._reject_repeated(kind)
        if relation.kinds:
            problems.check()  # otherwise each pair with the id of a bad row is another problem
        relation.leave_out_broken()
        for kind, name in sorted(relation.kinds.items()):
            rows = f"FROM texts WHERE kind = '{kind}'"
            if not relation.rows(f"{rows} LIMIT 1"):
                raise problems.error_or(f"{name}: is empty; it must have at least one row")
            batches = relation.batches(f"SELECT id, title, text {rows}", "text", "texts")
            self.builder.write_texts(FILES[kind], batches)
            relation.execute(
                f"""CREATE TABLE {kind} AS SELECT id, text, row_number() OVER () - 1 AS number,
                {blank_sql("text")} AND {blank_sql("title")} AS empty {rows}"""
            )

    def _reject_repeated(self, kind: str) -> None:
        """Reject the rows whose id occurs in an earlier row."""
        repeated = f"""FROM texts JOIN (
            SELECT id, min(rowid) AS place, arg_min([file, line], rowid) AS first FROM texts
            WHERE kind = '{kind}' GROUP BY id HAVING count(*) > 1
        ) USING (id) WHERE kind = '{kind}' AND texts.rowid != place"""
        example = f"SELECT first {repeated} ORDER BY texts.rowid LIMIT 1"
        for ((file, line),) in self.relation.rows(example):
            first = self.relation.files[file][0].place(line)
            text = f"duplicate id {{}}; first seen at {first}, and ids must be unique"
            self.relation.refuse(f"SELECT file, line, id {repeated}", Rule("id", "", text))

    def _leave_out_empty(self) -> None:
        """Leave out empty documents, and the pairs of queries without a text or a positive."""
        no_query, no_document = blank_sql("query"), blank_sql("document")
        answered = f"SELECT file, line FROM pairs WHERE NOT negative AND NOT {no_document}"
        ((documents, queries),) = self.relation.rows(
            f"""SELECT (SELECT count(*) FROM pairs WHERE {no_document}),
            (SELECT count(DISTINCT (file, line)) FROM pairs
             WHERE {no_query} AND (file, line) IN ({answered}))"""
        )
        self.relation.execute(
            f"""DELETE FROM pairs WHERE {no_document} OR {no_query}
            OR (file, line) NOT IN ({answered})"""
        )
        if empty := documents + queries:
            self.relation.note(f"left out {counted(empty, 'empty text')} and their pairs")

    def _number(self) -> bool:
        """Number the texts of all pairs; return whether a row has an invalid id or empty text."""
        relation = self.relation
        joins = " ".join(self._make_numbers(side) for side in SIDES)
        columns = ", ".join(f"{number_sql(name)}::FLOAT AS {name}" for name in NUMBERS)
        relation.execute(
            f"""CREATE OR REPLACE TABLE numbered AS SELECT file, line, pairs.rowid AS place, split,
            negative, query_texts.number::INTEGER AS query,
            document_texts.number::INTEGER AS document, {columns},
            coalesce(query_texts.empty OR document_texts.empty, false) AS empty
            FROM pairs {joins}"""
        )
        refused = [self._check_names(side) for side in SIDES]
        if not relation.lenient:
            text = "a relevant pair has a query or document without a text; add it or remove "
            empty = f"SELECT file, line, 0 FROM numbered WHERE empty AND {RELEVANT}"
            refused.append(relation.refuse(empty, Rule("", "", f"{text}the pair")) > 0)
        relation.execute("DELETE FROM numbered WHERE query IS NULL OR document IS NULL")
        return any(refused)

    def _make_numbers(self, side: str) -> str:
        """Number the texts of a side by their keys; return the SQL that joins numbers to pairs."""
        relation, kind = self.relation, SIDES[side]
        ((self.has_ids[side],),) = relation.rows(f"SELECT count({side}_id) > 0 FROM pairs")
        name, before = f"{side}_key", ""
        if kind in relation.kinds:
            known = relation.rows(f"FROM pairs SEMI JOIN {kind} ON {side} = id LIMIT 1")
            texts = f"""SELECT {text_key_sql("text")} AS key, min(number) AS number, false AS empty
                FROM {kind} GROUP BY key"""
            same = f"FROM pairs SEMI JOIN ({texts}) AS texts ON {name} = texts.key LIMIT 1"
            self.by_text[side] = not known and bool(relation.rows(same))
            if not self.by_text[side]:
                name, texts = side, f"SELECT id AS key, number, empty FROM {kind}"
        else:
            texts = f"""min({PLACE}) AS first, false AS empty FROM pairs
                WHERE {side} IS NOT NULL GROUP BY key"""
            if self.has_ids[side]:
                by_text, by_id = f"{side}_key::VARCHAR", f"'#' || {side}_id"
                name = f"CASE WHEN {side}_id IS NULL THEN {by_text} ELSE {by_id} END"
                texts = f"""SELECT {by_text} AS key, any_value({side}_key) AS hash, {texts}
                    UNION ALL
                    SELECT {by_id} AS key, arg_min({side}_key, {PLACE}) AS hash, {texts}"""
            else:
                texts = f"SELECT {name} AS key, {texts}"
            texts = f"""SELECT *, dense_rank() OVER (ORDER BY first) - 1 AS number
                FROM ({texts}) WHERE key IS NOT NULL"""
            before = f" AND {side}_texts.first <= {PLACE}"  # an id refers to a text read before
        relation.execute(f"CREATE OR REPLACE TABLE {side}_numbers AS {texts}")
        return f"LEFT JOIN {side}_numbers AS {side}_texts ON {name} = {side}_texts.key{before}"

    def _check_names(self, side: str) -> bool:
        """Reject the rows whose id has no text, or a different text than before.

        Published data get a note instead.
        """
        relation, kind = self.relation, SIDES[side]
        known, refused = kind in relation.kinds, 0
        by_text = known and self.by_text[side]
        value = f"pairs.{side}" if known else f"pairs.{side}_id"
        unknown = f"""FROM numbered JOIN pairs ON numbered.place = pairs.rowid
            WHERE numbered.{side} IS NULL AND {value} IS NOT NULL"""
        if relation.lenient and known:
            counted_rows = "*" if side == "document" else "DISTINCT (pairs.file, pairs.line)"
            first = f"arg_min({value}, pairs.rowid)"
            ((missing, name),) = relation.rows(f"SELECT count({counted_rows}), {first} {unknown}")
            example = "" if by_text else f", such as {shown(name)}"
            if missing:
                relation.note(
                    f"left out {counted(missing, 'judgement')} of missing {kind}{example}"
                )
        else:
            text = f"{side} {{}} has no text in these files"
            if known:
                problem = f"the {side} is not a text" if by_text else f"{side} {{}} is not an id"
                text = f"{problem} in the table of {kind}; add it to the table, or remove its pairs"
            rows = f"SELECT pairs.file, pairs.line, {value} {unknown}"
            refused = relation.refuse(rows, Rule(side, "", text))
        if not known and self.has_ids[side]:
            clash = f"""SELECT file, line, {side}_id FROM pairs
                JOIN {side}_numbers ON key = '#' || {side}_id
                WHERE {side} IS NOT NULL AND hash != {side}_key AND first <= {PLACE}"""
            text = f"{side} {{}} has a different text than before; give each text its own id"
            refused += relation.refuse(clash, Rule(side, "", text))
        return bool(refused)

    def _write_new_texts(self) -> None:
        """Write the texts that have no table."""
        for side, kind in reversed(SIDES.items()):
            if kind in self.relation.kinds:
                continue
            title = "coalesce(title, '')" if side == "document" else "''"
            identifier, used_ids = f"'{side[0]}' || number", ""
            if self.has_ids[side]:  # dashes make an id differ from the ids in the data
                form = f"'^{side[0]}([0-9]+)(-*)$'"
                used_ids = f"""LEFT JOIN (SELECT regexp_extract({side}_id, {form}, 1) AS digits,
                    max(len(regexp_extract({side}_id, {form}, 2))) + 1 AS dashes
                    FROM pairs GROUP BY digits) ON digits = number::VARCHAR"""
                new_id = f"{identifier} || repeat('-', coalesce(dashes, 0))"
                identifier = f"coalesce({side}_id, {new_id})"
            texts = f"""SELECT {identifier} AS id, {title} AS title, {side} AS text, number
                FROM pairs JOIN (SELECT DISTINCT first, number FROM {side}_numbers)
                ON {PLACE} = first {used_ids}"""
            for order in ("", " ORDER BY number"):  # sort only if needed, because it is slow
                batches = self.relation.batches(texts + order, side, "pairs")
                with batches, suppress(NotInOrderError):
                    self.builder.write_texts(FILES[kind], _in_order(batches))
                    break

    def _arrays(self, sql: str) -> list[NDArray[Any]]:
        """The columns of a query's result."""
        columns = self.relation.execute(sql).fetchnumpy()
        return [np.ma.filled(values, np.nan) for values in columns.values()]

    def _store_teacher(self) -> None:
        rows = "FROM numbered WHERE score IS NOT NULL ORDER BY place"
        scores = self._arrays(f"SELECT query, document, score {rows}")
        if len(scores[0]):
            self.builder.teacher = TeacherScores.from_arrays(*scores)

    def _leave_out_pairs_of_empty_texts(self) -> None:
        """Leave out relevant pairs with an empty text, and count them by split."""
        pairs, tables = f"FROM numbered WHERE empty AND {RELEVANT}", self.builder.tables
        for split, count, query, document in self.relation.rows(
            f"""SELECT split, count(*), arg_min(query, place), arg_min(document, place) {pairs}
            GROUP BY split ORDER BY min(place)"""
        ):
            self.relation.note(
                f"{split}: left out {counted(count, 'relevant pair')} with an empty text, such as "
                f"query {shown(tables['queries'].ids(np.array([query]))[0])}, "
                f"document {shown(tables['corpus'].ids(np.array([document]))[0])}"
            )
        self.relation.execute(f"DELETE {pairs}")

    def _qrels(self, split: str) -> Qrels:
        """Build the qrels of a split, and merge repeated pairs."""
        note = self.relation.note
        rows = f"FROM numbered WHERE NOT negative AND split = {literal_sql(split)}"
        ((pairs, graded, weighted, fractions),) = self.relation.rows(
            f"""SELECT count(*), count(grade), count(weight),
            coalesce(bool_or(grade != floor(grade)), false) {rows}"""
        )
        for name, count in (("grade", graded), ("weight", weighted)):
            if 0 < count < pairs:
                note(f"{split}: {pairs - count:,} of {pairs:,} pairs have no {name}; it becomes 1")
        grade = "max(coalesce(grade, 1))"
        weight = "sum(coalesce(weight, 1)::DOUBLE)" if weighted else "NULL"
        if fractions:
            use = "are ignored" if weighted else "become weights"
            note(f"{split}: grades with fractions {use}; pairs above 0 are relevant, with grade 1")
            if not weighted:
                weight = "sum(greatest(coalesce(grade, 1), 0)::DOUBLE)"
            grade = "max((coalesce(grade, 1) > 0)::INTEGER)"
        query, document, grades, weights = self._arrays(
            f"""SELECT query, document, ({grade})::INTEGER AS grade, ({weight})::FLOAT AS weight
            {rows} GROUP BY query, document ORDER BY query, document"""
        )
        if merged := pairs - len(query):
            note(f"{split}: merged {counted(merged, 'repeated pair')}")
        if not (weighted or fractions):
            return Qrels.from_arrays(query, document, grades)
        grades = np.where(weights > 0, grades, np.minimum(grades, 0)).astype(np.int32)
        return Qrels.from_arrays(query, document, grades, weights)

    def _store_negatives(self) -> None:
        """Store each negative of a query once, unless the document is relevant to the query."""
        query, document, _ = self._arrays(
            """SELECT query, document, min(place) AS place FROM numbered
            WHERE negative AND split = 'train' GROUP BY query, document ORDER BY query, place"""
        )
        if len(query) == 0:
            return
        relevant = self.builder.splits["train"].relevant()
        valid = ~np.isin(pair_keys(query, document), relevant.keys)
        if not valid.all():
            dropped = counted(int((~valid).sum()), "negative")
            self.relation.note(f"dropped {dropped} that the same query has as positives")
        if valid.any():
            counts = np.bincount(query[valid], minlength=len(self.builder.tables["queries"]))
            self.builder.given_negatives = DocumentLists.from_counts(counts, document[valid])
