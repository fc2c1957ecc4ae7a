"""``RetrievalData``: splits, grades, and writing."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bad_inputs.table import edit
from opera.core.errors import DataError
from opera.data import load_data
from opera.data.relation import check_string
from opera.data.retrieval_data import with_relevant_grade
from tiny_world import data_from_dicts


def test_data_are_written_and_read_again(beir, tmp_path, caplog):
    data = load_data(beir)
    data.write_beir(f"{tmp_path}/copy")
    again = load_data(tmp_path / "copy")
    assert again.corpus.texts() == data.corpus.texts()
    assert np.array_equal(again.split("test").grades, data.split("test").grades)
    assert not caplog.records
    train = data.split("train")
    weighted = replace(train, weights=train.grades.astype(np.float32))
    replace(data, splits={"train": weighted}, query_prompt="find: ").write_beir(tmp_path / "weighted")
    assert caplog.messages[0].endswith("; not written: weights of pairs, a query prompt")


def test_titles_count_unless_only_texts_are_encoded(make_beir):
    folder = make_beir()
    edit("corpus.jsonl", 110, '{"_id": "d109", "title": " ", "text": "\\u2003\\n"}')(folder)
    edit("corpus.jsonl", 111, '{"_id": "d110", "title": "a title", "text": " "}')(folder)
    for path in (folder / "qrels").iterdir():
        path.write_text("query-id\tcorpus-id\tscore\ntrain0\td7\t1\n")
    corpus = load_data(folder).corpus
    assert corpus.empty_rows("title_text").tolist() == [109]
    assert corpus.empty_rows("text").tolist() == [109, 110]
    assert corpus.texts(slice(110, 111)) == ["a title"]
    assert corpus.texts(slice(110, 111), "text") == [" "]


def test_judged_qrels_leave_out_queries_without_a_relevant_document():
    qrels = {"test": {"q0": {"d": 0}, "q1": {"d": 1}}, "dev": {"q0": {"d": 0}}}
    data = data_from_dicts("mine", corpus={"d": "a"}, queries={"q0": "x", "q1": "y"}, qrels=qrels)
    assert data.judged_qrels("test").query_rows.tolist() == [1]
    with pytest.raises(DataError, match="split 'dev' has no judgement above 0: nothing to measure"):
        data.judged_qrels("dev")
    with pytest.raises(DataError, match=r"has no split 'train' \(it has: test, dev\)"):
        data.judged_qrels("train")


def test_a_relevant_grade_sets_lower_positive_ones_to_zero_in_every_split():
    qrels = {split: {"q": {"a": -1, "b": 1, "c": 2, "d": 3}} for split in ("train", "test")}
    data = data_from_dicts("mine", corpus=dict.fromkeys("abcd", "x"), queries={"q": "x"}, qrels=qrels)
    assert with_relevant_grade(data, 1).splits is data.splits
    graded = with_relevant_grade(data, 2)
    assert [graded.split(split).grades.tolist() for split in qrels] == [[-1, 0, 2, 3]] * 2
    assert graded.notes == ("relevant_grade=2: 2 judgements below it become not relevant",)


STRINGS = st.text(st.characters() | st.sampled_from("\t\n\r\x0b\x85\u2028\ud83d \"'\\"), max_size=5)


def passes(check: object, value: object) -> bool:
    try:
        check("mine: value", value)
    except DataError:
        return False
    return True


@settings(max_examples=10)
@given(STRINGS, STRINGS)
def test_what_passes_survives_a_beir_folder(identifier, text):
    assume(all(passes(check_string, value) and value.strip() for value in (identifier, text)))
    assume(not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", identifier))
    qrels = {"train": {identifier: {identifier: 1}}}
    data = data_from_dicts("mine", corpus={identifier: text}, queries={identifier: text}, qrels=qrels)
    with tempfile.TemporaryDirectory() as folder:
        data.write_beir(Path(folder))
        again = load_data(folder)
    assert again.corpus.ids() == again.queries.ids() == [identifier]
    assert again.corpus.texts() == again.queries.texts() == [text]
    assert again.split("train").grades.tolist() == [1]
