"""Rankings in TREC's run format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opera.core.errors import DataError
from opera.core.files import replace_file
from opera.core.terminal import place, shown
from opera.data import RetrievalData

if TYPE_CHECKING:
    from opera.retrieval.evaluation import Evaluation  # loads torch


def check_trec_ids(path: Path, data: RetrievalData, split: str) -> None:
    """Check, before a ranking is made, that TREC's format can hold the ids of a split's queries and of the documents.

    Raises:
        DataError: for an id with white space.
    """
    rows = (
        data.splits[split].query_rows if split in data.splits else None
    )  # a run may bring a split of its own
    for identifier in (*data.queries.ids(rows), *data.corpus.ids()):
        if len(identifier.split()) != 1:
            raise DataError(
                f"{place(path)}: a TREC run cannot hold the id {shown(identifier)}: it has white space"
            )


def write_trec_run(path: Path, result: Evaluation, data: RetrievalData) -> None:
    """Write a ranking: query, Q0, document, rank, score, tag; the ids must have been checked."""

    def lines() -> Iterable[str]:
        for at, query in enumerate(result.query_ids):
            docs = data.corpus.ids(result.ranking.doc_rows[at])
            for rank, (doc, score) in enumerate(
                zip(docs, result.ranking.scores[at], strict=True), start=1
            ):
                yield f"{query} Q0 {doc} {rank} {score:.8g} opera\n"

    replace_file(path, lambda temporary: temporary.write_text("".join(lines()), encoding="utf-8"))
