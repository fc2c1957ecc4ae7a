"""``RetrievalData``: splits, grades, and writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opera.core.errors import DataError, InputError
from opera.data import RetrievalData, load_data

MakeBeir = Callable[..., Path]


def test_write_beir_takes_what_every_path_takes(beir: Path, tmp_path: Path) -> None:
    data = load_data(beir)
    data.write_beir(f"{tmp_path}/copy")
    again = load_data(tmp_path / "copy")
    assert again.corpus.texts() == data.corpus.texts()
    assert np.array_equal(again.split("test").grades, data.split("test").grades)
    (tmp_path / "file").touch()
    for wrong, message in ((tmp_path / "file", "is a file; pass a folder"), ("", "must not be empty"), (7, "a path")):
        with pytest.raises(InputError, match=message):
            data.write_beir(wrong)  # type: ignore[arg-type]


def test_what_a_beir_folder_cannot_hold_is_listed(beir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = load_data(beir)
    data.write_beir(tmp_path / "plain")
    assert not caplog.records
    train = data.split("train")
    weighted = replace(train, weights=train.grades.astype(np.float32))
    replace(data, splits={"train": weighted}, query_prompt="find: ").write_beir(tmp_path / "weighted")
    assert caplog.messages[0].endswith("; not written: weights of pairs, a query prompt")


class TestFromDicts:
    def test_everything_is_kept(self) -> None:
        qrels = {"train": {"q1": {"d2": 2, "d0": 0}}, "test": {"q0": {"d1": 1}}, "dev": {}}
        data = RetrievalData.from_dicts(
            "some/where.csv", corpus={"d0": "a", "d1": "b", "d2": "c"}, queries={"q0": "x", "q1": "y"}, qrels=qrels
        )
        assert (data.name, data.source) == ("where", "some/where.csv")
        assert data.corpus.texts() == ["a", "b", "c"]
        assert data.queries.ids() == ["q0", "q1"]
        train = data.split("train")
        assert train.query_rows.tolist() == [1]
        assert train.doc_rows.tolist() == [0, 2]
        assert train.grades.tolist() == [0, 2]
        assert data.split("dev").n_queries == 0
        assert data.counts()["train_pairs"] == data.counts()["test_pairs"] == 1

    def test_the_fingerprint_is_of_the_contents(self) -> None:
        texts = {"corpus": {"d": "a"}, "queries": {"q": "b"}}
        first, second, other = (
            RetrievalData.from_dicts(name, **texts, qrels={"train": {"q": {"d": grade}}}).fingerprint
            for name, grade in (("one", 1), ("two", 1), ("one", 2))
        )
        assert first == second != other

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"corpus": {"d": None}}, "mine: document 'd': text must be a string, got None"),
            ({"queries": {"q": "cut \ud83d"}}, r"mine: query 'q': text holds half a character ('\ud83d')"),
            ({"corpus": {7: "a"}}, "mine: document id must be a string, got 7"),
            ({"queries": {"": "b"}}, "mine: query id must not be empty"),
            (
                {"queries": {"q\t1": "b"}},
                r"mine: query id must not contain a tab, a line break or another control character, got 'q\t1'",
            ),
            ({"qrels": {"test": {"q": {7: 1}}}}, "mine: split 'test' judges document 7 without a text"),
            ({"qrels": {"test": {"q": {"d": 1.5}}}}, "mine: split 'test': score must be a whole number, got 1.5"),
            ({"qrels": {"test": {"q": {"d": True}}}}, "mine: split 'test': score must be a whole number, got True"),
            ({"qrels": {"test": {"p": {"d": 1}}}}, "mine: split 'test' judges query 'p' without a text"),
            ({"qrels": {"test": {"q": {"d": 1, "e": 1}}}}, "mine: split 'test' judges document 'e' without a text"),
        ],
    )
    def test_errors_name_the_id(self, changes: dict[str, Any], message: str) -> None:
        whole = {"corpus": {"d": "a"}, "queries": {"q": "b"}, "qrels": {"train": {"q": {"d": 1}}}}
        with pytest.raises(DataError) as caught:
            RetrievalData.from_dicts("mine", **{**whole, **changes})
        assert message in str(caught.value)


def test_judged_qrels_leave_out_queries_without_a_relevant_document() -> None:
    qrels = {"test": {"q0": {"d": 0}, "q1": {"d": 1}}, "dev": {"q0": {"d": 0}}}
    data = RetrievalData.from_dicts("mine", corpus={"d": "a"}, queries={"q0": "x", "q1": "y"}, qrels=qrels)
    assert data.judged_qrels("test").query_rows.tolist() == [1]
    with pytest.raises(DataError, match="split 'dev' has no judgement above 0: nothing to measure"):
        data.judged_qrels("dev")
    with pytest.raises(DataError, match=r"has no split 'train' \(it has: test, dev\)"):
        data.judged_qrels("train")


def test_a_relevant_grade_sets_lower_ones_to_zero(beir: Path) -> None:
    data = load_data(beir)
    assert data.with_relevant_grade(1) is data
    graded = data.with_relevant_grade(2)
    below = sum(int((qrels.grades == 1).sum()) for qrels in data.splits.values())
    assert graded.notes == (f"relevant_grade=2: {below} judgements below it become not relevant",)
    for name, qrels in graded.splits.items():
        assert np.array_equal(qrels.grades, np.where(data.split(name).grades < 2, 0, data.split(name).grades))
