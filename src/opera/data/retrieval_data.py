"""``RetrievalData``: a corpus, queries, and the qrels of each split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.arguments import user_path, whole_number
from opera.core.errors import DataError
from opera.core.files import check_folder
from opera.core.terminal import counted, log
from opera.data.names import DataName, source_title
from opera.data.qrels import DocumentLists, Qrels, TeacherScores
from opera.data.texts import ROWS_AT_ONCE, TextTable

BEIR_HEADER = ["query-id", "corpus-id", "score"]
"""The first line of a BEIR folder's qrels."""


@dataclass(frozen=True)
class RetrievalData:
    """A retrieval data set, from any source.

    Attributes:
        name: short name, for tables.
        source: the user's name for the data, such as a path or ``python:PACKAGE``.
        fingerprint: SHA-256 of the source's contents, in hex.
        corpus: the documents.
        queries: the queries of all splits.
        splits: qrels by split name (``train``, ``dev``, ``test``).
        given_negatives: negatives that came with the data, or ``None``.
        teacher: scores of a teacher that came with the data, or ``None``.
        query_prompt: the prompt of the queries that came with the data, or ``None``.
        held_out: judgements that left train because their documents are held out for another split,
            or ``None``. Their documents remain positives of their queries, and never become
            negatives.
        notes: sentences about merged, dropped and split data.
        skipped: the table rows that were left out, with file, line, reason and text, or ``None``.
        lowest_grade: the lowest relevant grade, see :func:`with_relevant_grade`.

    Examples:
        >>> data = opera.load_data("example:faq")
        >>> len(data.corpus), data.split("train").n_queries
        (66, 300)
    """

    name: str
    source: DataName
    fingerprint: str
    corpus: TextTable
    queries: TextTable
    splits: dict[str, Qrels]
    given_negatives: DocumentLists | None = None
    held_out: Qrels | None = None
    teacher: TeacherScores | None = None
    query_prompt: str | None = None
    notes: tuple[str, ...] = ()
    skipped: pa.Table | None = None
    lowest_grade: int = 1

    def __repr__(self) -> str:
        return f"RetrievalData({self.title}: {counts_in_words(self.counts())})"

    @property
    def title(self) -> str:
        """The title of the data in messages, such as the files."""
        return source_title(self.source)

    @property
    def query_group(self) -> NDArray[np.int32]:
        """The first row with the same text as each query: int32, by row of the query table."""
        return self.queries.group

    @property
    def document_group(self) -> NDArray[np.int32]:
        """The first row with the same title and text as each document: int32, by row of the
        corpus."""
        return self.corpus.group

    def split(self, name: str) -> Qrels:
        """Return the qrels of a split.

        Raises:
            DataError: if the data have no such split.
        """
        if name not in self.splits:
            raise DataError(
                f"{self.title}: has no split '{name}' (it has: {', '.join(self.splits) or 'none'})"
            )
        return self.splits[name]

    def training_split(self) -> Qrels:
        """Return the relevant judgements of ``train``.

        Raises:
            DataError: if train has no relevant pair.
        """
        relevant = self.split("train").relevant()
        if relevant.n_queries == 0:
            raise DataError(
                f"{self.title}: split 'train' has no pair with a grade {self._relevant}: "
                "nothing to train on"
            )
        return relevant

    def judged_qrels(self, split: str) -> Qrels:
        """Return the qrels of a split without the queries that have no relevant document.

        Raises:
            DataError: if the data have no such split, or none of its queries has a relevant
                document.
        """
        qrels = self.split(split)
        if not qrels.has_relevant.any():
            raise DataError(
                f"{self.title}: split '{split}' has no judgement {self._relevant}: nothing to "
                "measure"
            )
        return qrels.select_queries(qrels.has_relevant)

    @property
    def _relevant(self) -> str:
        """Which grades are relevant, for messages."""
        lowest = self.lowest_grade
        return "above 0" if lowest == 1 else f"of {lowest} or more (relevant_grade={lowest})"

    def hold_out_pairs(self, pairs: Qrels) -> RetrievalData:
        """Move judgements from train to ``held_out``; they need not be in train."""
        if not len(pairs.doc_rows):
            return self
        train = self.split("train")
        return replace(
            self,
            splits={**self.splits, "train": train.select_judgements(~pairs.contains(train))},
            held_out=pairs if self.held_out is None else pairs.union(self.held_out),
        )

    def counts(self) -> dict[str, int]:
        """Count the documents, and the queries and relevant pairs of each split."""
        counts = {"documents": len(self.corpus)}
        for name, qrels in self.splits.items():
            relevant = qrels.relevant()
            counts[f"{name}_queries"], counts[f"{name}_pairs"] = (
                relevant.n_queries,
                len(relevant.doc_rows),
            )
        return counts

    def write_beir(self, folder: str | Path) -> None:
        """Write the data as a BEIR folder: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/*.tsv``.

        The format cannot hold weights of pairs, given negatives, a teacher's scores, held-out
        judgements or a query prompt. If the data have any of them, a warning lists them.

        Raises:
            SettingError: if ``folder`` is not a path.
            RunFolderError: if the folder cannot be created.
        """
        home = user_path(folder, "folder")
        check_folder(home, "folder")
        lost = {
            "weights of pairs": any(qrels.weights is not None for qrels in self.splits.values()),
            "given negatives": self.given_negatives is not None,
            "a teacher's scores": self.teacher is not None,
            "held-out judgements": self.held_out is not None,
            "a query prompt": self.query_prompt is not None,
        }
        if any(lost.values()):
            listed = ", ".join(name for name, is_lost in lost.items() if is_lost)
            log.warning(
                "%s: a BEIR folder cannot hold all of %s; not written: %s", home, self.name, listed
            )
        (home / "qrels").mkdir(parents=True, exist_ok=True)
        for name, table in (("corpus", self.corpus), ("queries", self.queries)):
            with (home / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                for batch in table.table.to_batches(max_chunksize=ROWS_AT_ONCE):
                    for record in batch.to_pylist():
                        title = {"title": record["title"]} if name == "corpus" else {}
                        fields = {"_id": record["id"], **title, "text": record["text"]}
                        file.write(json.dumps(fields, ensure_ascii=False) + "\n")
        query_ids, doc_ids = self.queries.ids(), self.corpus.ids()
        for name, qrels in self.splits.items():
            path = home / "qrels" / f"{name}.tsv"
            with path.open("w", encoding="utf-8", newline="") as file:
                file.write("\t".join(BEIR_HEADER) + "\n")
                query_rows = qrels.query_rows[qrels.query_index]
                for query_row, doc_row, grade in zip(
                    query_rows, qrels.doc_rows, qrels.grades, strict=True
                ):
                    file.write(f"{query_ids[query_row]}\t{doc_ids[doc_row]}\t{grade}\n")


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Return :meth:`RetrievalData.counts` in words: ``1 document, 2 train queries``."""
    nouns = {"documents": "document", "queries": "query", "pairs": "pair"}
    words = [(count, *name.rpartition("_")) for name, count in counts.items()]
    return ", ".join(
        counted(count, f"{split} {nouns[noun]}".strip()) for count, split, _, noun in words
    )


def with_relevant_grade(data: RetrievalData, lowest: int) -> RetrievalData:
    """Set positive grades below ``lowest`` to 0 (not relevant) in every split; a note counts them.

    Higher grades do not change, because they are the gains of nDCG.

    Raises:
        SettingError: if ``lowest`` is not a whole number of 1 or more.
    """
    lowest = whole_number(lowest, "relevant_grade", 1)
    grades = {name: qrels.grades for name, qrels in data.splits.items()}
    low = {name: (values > 0) & (values < lowest) for name, values in grades.items()}
    below = sum(int(values.sum()) for values in low.values())
    if below == 0:
        return replace(data, lowest_grade=max(lowest, data.lowest_grade))
    splits = {
        name: replace(qrels, grades=np.where(low[name], 0, qrels.grades).astype(np.int32))
        for name, qrels in data.splits.items()
    }
    note = f"relevant_grade={lowest}: {counted(below, 'judgement')} below it become not relevant"
    return replace(data, splits=splits, notes=(*data.notes, note), lowest_grade=lowest)
