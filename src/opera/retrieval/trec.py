"""Rankings in TREC's run format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opera.core.errors import DataError
from opera.core.files import replace_file
from opera.data import RetrievalData
from opera.retrieval.evaluation import Evaluation


def write_trec_run(path: Path, result: Evaluation, data: RetrievalData) -> None:
    """Write a ranking: query, Q0, document, rank, score, tag.

    Raises:
        DataError: for an id with white space, which the format cannot hold.
    """
    for identifier in (*result.query_ids, *data.corpus.ids()):
        if len(identifier.split()) != 1:
            raise DataError(f"{path}: TREC's run format cannot hold the id {identifier!r}: it has white space")

    def lines() -> Iterable[str]:
        for at, query in enumerate(result.query_ids):
            docs = data.corpus.ids(result.ranking.doc_rows[at])
            for rank, (doc, score) in enumerate(zip(docs, result.ranking.scores[at], strict=True), start=1):
                yield f"{query} Q0 {doc} {rank} {score:.8g} opera\n"

    replace_file(path, lambda temporary: temporary.write_text("".join(lines()), encoding="utf-8"))
