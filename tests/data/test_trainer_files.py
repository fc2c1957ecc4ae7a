"""Files of FlagEmbedding and Tevatron: what is read, and how errors are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import files_read, load_data


def write(folder: Path, *records: object) -> Path:
    path = folder / "train.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n")
    return path


def test_reads_pairs_and_negatives(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"query": "q one", "pos": ["a", "b"], "neg": ["c", "a"]},
        {"query": "q two", "pos": ["c"], "pos_scores": [1]},
        {"query": "q one", "pos": ["d"], "neg": ["e"]},
    )
    data = load_data(path)
    assert data.corpus.texts() == ["a", "b", "c", "d", "e"]
    train = data.split("train")
    assert train.doc_rows.tolist() == [0, 1, 3, 2]
    assert data.given_negatives is not None
    assert data.given_negatives.doc_rows.tolist() == [2, 4]
    assert data.given_negatives.offsets.tolist() == [0, 2, 2]
    assert data.notes == (
        "1 pairs have a score of a teacher",
        "1 negatives are also positives of their query and were dropped as negatives",
    )


def test_a_column_may_be_null(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeff{"query": "q", "pos": ["a"], "neg": null, "pos_scores": null, "neg_scores": []}')
    data = load_data(path)
    assert (data.corpus.texts(), data.given_negatives) == (["a"], None)


def save(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_scores_become_a_teachers_and_null_is_none(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"query": "q", "pos": ["a", "b"], "neg": ["c"], "pos_scores": [9, None], "neg_scores": [-0.5]},
        {"query": "other", "pos": ["c"], "pos_scores": None},
    )
    data = load_data(path)
    assert data.teacher is not None
    assert len(data.teacher) == 2
    found = data.teacher.lookup(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 2]))
    assert np.array_equal(found, [9, np.nan, -0.5, np.nan], equal_nan=True)
    assert "2 pairs have a score of a teacher" in data.notes


@pytest.mark.parametrize(
    ("prompts", "kept", "note"),
    [
        (["find: ", "find: "], "find: ", "every line has the prompt 'find: ': it goes before each query"),
        (["find: ", "other: "], None, "2 different prompts, such as 'find: ' and 'other: ': none is used"),
        (["find: ", None], None, "2 different prompts, such as 'find: ' and '': none is used"),
        ([None, None], None, None),
    ],
)
def test_the_prompt_that_all_lines_share_is_kept(
    prompts: list[str | None], kept: str | None, note: str | None, tmp_path: Path
) -> None:
    data = load_data(write(tmp_path, *({"query": f"q{n}", "pos": ["a"], "prompt": p} for n, p in enumerate(prompts))))
    assert data.query_prompt == kept
    assert [note in said for said in data.notes] == ([] if note is None else [True])


def test_unused_columns_are_listed_once(tmp_path: Path) -> None:
    data = load_data(write(tmp_path, {"query": "q", "pos": ["a"], "type": "x", "id": 3, "pos_id": ["7"]}))
    assert data.notes == ("unused columns: id, pos_id, type",)


def test_a_folder_is_one_data_set_with_splits_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    save(folder / "nq_train.jsonl", {"query": "one", "pos": ["a"], "neg": ["b"]})
    save(folder / "other.jsonl", {"query": "two", "pos": ["b"]})
    save(folder / "eval.jsonl", {"query": "three", "pos": ["c"]}, {"query": "one", "pos": ["c"]})
    save(folder / "facts.jsonl", {"author": "me"})
    (folder / ".hidden.jsonl").write_text("{")
    data = load_data(folder)
    assert data.name == "mine"
    assert data.corpus.texts() == ["c", "a", "b"]
    assert {name: qrels.n_queries for name, qrels in data.splits.items()} == {"train": 2, "test": 2}
    assert data.notes[0] == "test from 'eval.jsonl'; train from 'nq_train.jsonl', 'other.jsonl'"
    assert data.notes[1] == "not read, since no trainer's keys are in them: 'facts.jsonl'"
    assert "1 of the 2 queries of test are in train too" in data.notes
    pattern = load_data(str(folder / "*r*.jsonl"))
    assert (pattern.corpus.texts(), pattern.name) == (["a", "b"], "mine")
    assert files_read(pattern) == [folder / "nq_train.jsonl", folder / "other.jsonl"]
    save(folder / "test.jsonl", {"query": "four", "pos": ["d"]})
    assert load_data(folder).split("dev").n_queries == 2


def test_evaluation_files_are_splits_and_their_texts_the_documents(tmp_path: Path) -> None:
    save(tmp_path / "train.jsonl", {"query": "seen", "pos": ["of one a text"], "neg": ["new"]})
    save(tmp_path / "corpus.jsonl", {"id": "x", "title": "of one", "text": "a text"}, {"id": 7, "text": "seven"})
    save(tmp_path / "test_queries.jsonl", {"id": "t", "text": "asked"}, {"id": "u", "text": "seen"})
    save(tmp_path / "test_qrels.jsonl", {"qid": "t", "docid": 7, "relevance": 2}, {"qid": "u", "docid": "x"})
    data = load_data(tmp_path)
    assert data.corpus.ids() == ["x", "7", "d2"]
    assert data.queries.ids() == ["t", "u"]
    assert data.split("train").doc_rows.tolist() == [0], "a text of the corpus is that document"
    test = data.split("test")
    assert (test.query_rows.tolist(), test.doc_rows.tolist(), test.grades.tolist()) == ([0, 1], [1, 0], [2, 1])
    (tmp_path / "train.jsonl").unlink()
    assert list(load_data(tmp_path).splits) == ["test"]
    save(tmp_path / "test_qrels.jsonl", *[{"qid": "t", "docid": 7, "relevance": 2}] * 2)
    repeated = load_data(tmp_path)
    assert repeated.split("test").grades.tolist() == [2]
    assert "test: merged 1 repeated pairs" in repeated.notes


LINE = {
    "query_id": "17",
    "query": "one",
    "positive_passages": [{"docid": "b", "title": "of b", "text": "a text"}],
    "negative_passages": [{"docid": 4, "text": "four"}],
    "answers": ["x"],
}


def test_ids_titles_and_negatives_are_kept(tmp_path: Path) -> None:
    again = {**LINE, "positive_passages": [{"docid": "4", "text": "four"}], "query_id": "18", "query": "two"}
    data = load_data(save(tmp_path / "train.jsonl", LINE, again))
    assert (data.queries.ids(), data.corpus.ids()) == (["17", "18"], ["b", "4"])
    assert data.corpus.texts() == ["of b a text", "four"]
    assert data.split("train").doc_rows.tolist() == [0, 1]
    assert data.given_negatives is not None
    assert data.given_negatives.offsets.tolist() == [0, 1, 1]
    assert data.notes == (
        "1 negatives are also positives of their query and were dropped as negatives",
        "unused columns: answers",
    )


def test_a_folder_has_splits_and_may_name_documents_by_id(tmp_path: Path) -> None:
    save(tmp_path / "corpus.jsonl", {"docid": "x", "text": "ex"}, {"docid": "y", "title": "Y", "text": "why"})
    ids = {"query_id": "1", "query_text": "one", "positive_document_ids": ["y"], "negative_document_ids": ["x"]}
    save(tmp_path / "train.jsonl", ids)
    save(tmp_path / "dev.jsonl", LINE)
    data = load_data(tmp_path)
    assert data.corpus.ids() == ["x", "y", "b", "4"]
    assert data.split("train").doc_rows.tolist() == [1]
    assert data.split("dev").doc_rows.tolist() == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positive_passages": []}, "column 'positive_passages' must not be empty"),
        ({"positive_passages": [{"docid": "x", "text": " "}]}, "column 'positive_passages' must not be empty"),
        ({"positive_passages": [{"docid": "", "text": "x"}]}, "column 'positive_passages.docid' must not be empty"),
        ({"negative_passages": [{"docid": "b", "text": "x"}]}, "document 'b' has another text than before"),
        ({"positive_document_ids": "x"}, "column 'positive_passages' must be a list, got 'x'"),
        ({"query": ""}, "column 'query' must not be empty"),
        ({"query": "other"}, "query '17' has another text than before; give it its own id"),
        ({"query_id": []}, "column 'query_id' must be a text or a number, got []"),
    ],
)
def test_a_bad_line_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "train.jsonl", LINE, {**LINE, **change})
    with pytest.raises(DataError) as caught:
        load_data(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


def test_a_passage_without_a_text_is_the_document_of_its_id(tmp_path: Path) -> None:
    path = save(tmp_path / "train.jsonl", LINE, {**LINE, "positive_passages": [{"docid": 4}]})
    assert load_data(path).split("train").doc_rows.tolist() == [0, 1]


def test_a_judgement_without_a_query_is_named(tmp_path: Path) -> None:
    save(tmp_path / "train.jsonl", {"query": "q", "pos": ["a"]})
    save(tmp_path / "test_qrels.jsonl", {"qid": None, "docid": "x"})
    with pytest.raises(DataError, match=r"test_qrels\.jsonl:1: column 'qid' must not be empty$"):
        load_data(tmp_path)
