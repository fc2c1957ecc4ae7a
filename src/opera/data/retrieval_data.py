"""``RetrievalData``: a corpus, queries, and the relevance qrels of each split."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from opera.core.errors import DataError
from opera.core.rng import generator
from opera.data.qrels import GivenNegatives, Qrels
from opera.data.texts import TextTable


@dataclass(frozen=True)
class RetrievalData:
    """A retrieval data set, whatever it was read from.

    Attributes:
        name: short name, for tables.
        source: what the user called it, such as a path or ``python:PACKAGE``.
        fingerprint: SHA-256 over everything that was read, in hex.
        corpus: the documents.
        queries: the queries of all splits.
        splits: judgements by split name (``train``, ``dev``, ``test``).
        given_negatives: negatives that came with the data, or ``None``.
        notes: what was merged, dropped or drawn, in sentences for people.
    """

    name: str
    source: str
    fingerprint: str
    corpus: TextTable
    queries: TextTable
    splits: dict[str, Qrels]
    given_negatives: GivenNegatives | None = None
    notes: tuple[str, ...] = ()

    def split(self, name: str) -> Qrels:
        """Return the qrels of a split.

        Raises:
            DataError: if there is no such split.
        """
        if name not in self.splits:
            raise DataError(f"{self.source}: has no split '{name}' (it has: {', '.join(self.splits) or 'none'})")
        return self.splits[name]

    def training_split(self) -> Qrels:
        """Return the relevant qrels of ``train``.

        Raises:
            DataError: if there is no training pair.
        """
        relevant = self.split("train").relevant()
        if relevant.n_queries == 0:
            raise DataError(f"{self.source}: split 'train' has no pair with a score above 0: nothing to train on")
        return relevant

    def with_relevant_grade(self, lowest: int) -> RetrievalData:
        """Count judgements below a grade as not relevant, in every split; a note says how many.

        Grades of ``lowest`` and above stay as they are, and are the gains of nDCG.
        """
        below = sum(int(((split.grades > 0) & (split.grades < lowest)).sum()) for split in self.splits.values())
        if below == 0:
            return self
        splits = {
            name: replace(split, grades=np.where(split.grades < lowest, 0, split.grades).astype(np.int32))
            for name, split in self.splits.items()
        }
        note = f"relevant_grade={lowest}: {below} judgements below it count as not relevant"
        return replace(self, splits=splits, notes=(*self.notes, note))

    def cut_like(self, other: RetrievalData) -> RetrievalData:
        """Give the queries of train to the splits that ``other``, made of these data, has them in."""
        train = self.split("train")
        splits = {
            name: self.splits[name]
            if name in self.splits and name != "train"
            else train.of_queries(np.isin(train.query_rows, split.query_rows))
            for name, split in other.splits.items()
        }
        return replace(self, splits=splits, notes=other.notes)

    def with_held_out(self, split: str, fraction: float, seed: int) -> RetrievalData:
        """Move a random share of the train queries, drawn by seed, to a new split; a note says so.

        Raises:
            DataError: if train is too small to give up a query.
        """
        train = self.split("train")
        usable = np.flatnonzero(np.bincount(train.query_of[train.grades > 0], minlength=train.n_queries))
        if len(usable) < 2:
            raise DataError(
                f"{self.source}: has no split '{split}', and {len(usable)} train queries are too few to draw one"
            )
        count = min(max(1, round(fraction * len(usable))), len(usable) - 1)
        drawn = np.zeros(train.n_queries, dtype=bool)
        drawn[usable[generator(seed, f"data.{split}").permutation(len(usable))[:count]]] = True
        note = f"no {split} split: drew {count} of the {len(usable)} train queries by seed {seed}"
        splits = {**self.splits, "train": train.of_queries(~drawn), split: train.of_queries(drawn)}
        return replace(self, splits=splits, notes=(*self.notes, note))

    def counts(self) -> dict[str, int]:
        """Count documents, and queries and relevant pairs of each split."""
        counts = {"documents": len(self.corpus)}
        for name, qrels in self.splits.items():
            relevant = qrels.relevant()
            counts[f"{name}_queries"], counts[f"{name}_pairs"] = relevant.n_queries, len(relevant.doc_rows)
        return counts

    def write_beir(self, folder: Path) -> None:
        """Write the data as a BEIR folder: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/*.tsv``."""
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name, table in (("corpus", self.corpus), ("queries", self.queries)):
            with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                for row in table.table.to_pylist():
                    fields = {"_id": row["id"], "title": row["title"], "text": row["text"]}
                    if name == "queries":
                        del fields["title"]
                    file.write(json.dumps(fields, ensure_ascii=False) + "\n")
        query_ids, doc_ids = self.queries.ids(), self.corpus.ids()
        for name, qrels in self.splits.items():
            with (folder / "qrels" / f"{name}.tsv").open("w", encoding="utf-8", newline="") as file:
                file.write("query-id\tcorpus-id\tscore\n")
                queries = qrels.query_rows[qrels.query_of]
                for query, doc, grade in zip(queries, qrels.doc_rows, qrels.grades, strict=True):
                    file.write(f"{query_ids[query]}\t{doc_ids[doc]}\t{grade}\n")
