"""Rankings in TREC's run format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import RetrievalData
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.measures import Ranking
from opera.retrieval.trec import check_trec_ids, write_trec_run


def evaluated(query_ids: list[str]) -> Evaluation:
    ranking = Ranking(np.array([[2, 0], [1, 2]]), np.array([[1 / 3, 0.25], [2e-10, -1]], dtype=np.float32))
    return Evaluation("test", query_ids, {}, ranking, [])


def data_of(doc_ids: list[str]) -> RetrievalData:
    return RetrievalData.from_dicts("mine", corpus=dict.fromkeys(doc_ids, "text"), queries={"q": "text"}, qrels={})


def test_a_line_per_query_and_rank(tmp_path: Path) -> None:
    write_trec_run(tmp_path / "run.trec", evaluated(["q0", "qé"]), data_of(["a", "b", "c"]))
    assert (tmp_path / "run.trec").read_text(encoding="utf-8").splitlines() == [
        "q0 Q0 c 1 0.33333334 opera",
        "q0 Q0 a 2 0.25 opera",
        "qé Q0 b 1 2e-10 opera",
        "qé Q0 c 2 -1 opera",
    ]


@pytest.mark.parametrize(("query", "doc"), [("q 0", "a"), ("q0", "a b"), ("q0", "a\u00a0b")])
def test_ids_with_white_space_are_refused(query: str, doc: str) -> None:
    texts = {"corpus": {"c": "text", doc: "text"}, "queries": {query: "text", "not judged": "text"}}
    data = RetrievalData.from_dicts("mine", **texts, qrels={"test": {query: {"c": 1}}})
    with pytest.raises(DataError, match=r"^x\.run: a TREC run cannot hold the id '.*': it has white space$"):
        check_trec_ids(Path("x.run"), data, "test")
    with pytest.raises(DataError, match="'not judged'"):
        check_trec_ids(Path("x.run"), data_with("c"), "of the run")


def data_with(doc: str) -> RetrievalData:
    queries = {"not judged": "text", "q": "text"}
    data = RetrievalData.from_dicts("mine", corpus={doc: "text"}, queries=queries, qrels={"test": {"q": {doc: 1}}})
    check_trec_ids(Path("x.run"), data, "test")  # queries of other splits may be called as they like
    return data
