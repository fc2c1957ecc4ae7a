"""Texts that occur under several ids: they are one document, or one query, in everything but the measures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opera
from opera.config.recipe import make_recipe
from opera.data import GivenNegatives, Mixture, RetrievalData, TeacherScores, TextTable
from opera.data.copies import documents_that_are_queries
from opera.data.decisions import with_decisions
from opera.data.splits import draw_missing_splits, known_fraction
from opera.training.build import TrainingSet, build_training_set
from opera.training.documents import DocumentPool
from opera.training.prepare_data import prepare_data
from small_runs import prepare
from tiny_world import data_from_dicts, with_drawn_splits

FILLERS = [f"f{n}" for n in range(12)]
CORPUS = {
    "positive": "t0w1 t0w2",
    "copy": " t0w1\n t0w2 ",
    "second": "t0w3 t0w1",
    "question": "t0w2 t0w3",
    "titled": "t0w2 t0w3",
    "negative": "t0w2 t1w1",
    **{name: f"t{n % 12}w4 common{n}" for n, name in enumerate(FILLERS)},
}
QUERIES = {"a": "t0w2 t0w3", "b": "t0w2  t0w3", **{f"q{n}": f"t{n}w5 t{n}w6" for n in range(8)}}
TRAIN = {"a": {"positive": 1, "copy": 3}, "b": {"second": 2, "copy": 2}, **{f"q{n}": {f"f{n}": 1} for n in range(4)}}
TEST = {f"q{n}": {f"f{n}": 1} for n in range(4, 8)}
KNOWN = ["positive", "copy", "second", "question", "titled"]
"""Documents that are never negatives of ``a`` and ``b``, which are the same query."""


def with_title(data: RetrievalData) -> RetrievalData:
    """Give some documents a title."""
    titles = pa.array(["common1" if name in ("titled", "whole") else "" for name in data.corpus.ids()])
    return replace(data, corpus=TextTable(data.corpus.table.set_column(1, "title", titles)))


@pytest.fixture(scope="module")
def data() -> RetrievalData:
    return with_title(data_from_dicts("toy", corpus=CORPUS, queries=QUERIES, qrels={"train": TRAIN, "test": TEST}))


def training_set(data: RetrievalData | Mixture, model: Path, **settings: Any) -> TrainingSet:
    return build_training_set(prepare(data, model, **{"method": "ft", "max_steps": 2, "guard": False, **settings}))


def listed(data: RetrievalData, built: TrainingSet) -> list[str]:
    return data.corpus.ids(built.negatives.lists.of_query(0))


def test_queries_with_one_text_train_once_with_all_positives(data):
    before = data.split("train")
    weighted = replace(before, weights=np.arange(1, 9, dtype=np.float32))
    data = replace(data, splits={**data.splits, "train": weighted})
    train = prepare_data(Mixture.of(data), make_recipe({"guard": False})).with_splits.joined.split("train")
    assert train.weights.tolist() == [1 + 2 + 3, 4, 5, 6, 7, 8], "copies add their weights"
    judged = {
        name: dict(zip(data.corpus.ids(part.doc_rows), part.grades.tolist(), strict=True))
        for name in data.queries.ids(train.query_rows)
        for part in [train.select_queries(np.isin(train.query_rows, data.queries.find_rows([name])))]
    }
    # the highest grade of three copies, neither the first nor the last one
    assert judged == {"a": {"positive": 3, "second": 2}, **{f"q{n}": {f"f{n}": 1} for n in range(4)}}


def test_no_copy_is_mined(data, static_model):
    names = listed(data, training_set(data, static_model, negatives="hard", range=(1, len(CORPUS))))
    assert sorted(names) == sorted({"negative", *FILLERS})
    table = opera.mine(data, model=static_model, range=(1, len(CORPUS)), keep=len(CORPUS)).to_pydict()
    mined = set(zip(table["query_id"], table["doc_id"], strict=True))
    assert {document for query, document in mined if query in "ab"} == {"negative", *FILLERS}
    assert not {query for query, document in mined if document == "copy"}, "a text is listed by its first id"


@pytest.mark.parametrize("query_trains", ["a", "b"])
@pytest.mark.parametrize("kind", ["given", "teacher"])
def test_no_copy_is_taken_from_a_list(kind, query_trains, data, static_model):
    """The list that came with ``b`` also counts for ``a``, and so on; the teacher has scores of ``b`` only."""
    train, other = data.split("train"), data.queries.find_rows(["b" if query_trains == "a" else "a"])
    rows = data.corpus.find_rows(["copy", "question", "negative", "f1"])
    lists = {"a": rows[[0, 2]], "b": rows[1:]}
    changed = replace(
        data,
        splits={**data.splits, "train": train.select_queries(train.query_rows != other)},
        given_negatives=GivenNegatives.of([lists.get(name, rows[:0]) for name in data.queries.ids()]),
        teacher=TeacherScores.from_arrays(np.repeat(data.queries.find_rows(["b"]), 4), rows, np.ones(4)),
    )
    assert sorted(listed(changed, training_set(changed, static_model, negatives=kind))) == ["f1", "negative"]


def test_random_negatives_draw_each_text_by_one_id(data, static_model):
    built = training_set(data, static_model, negatives="random")
    drawn = built.negatives.sets[0].draw(np.zeros(500, dtype=np.int64), 4, 0, 0)
    assert set(data.corpus.ids(np.unique(drawn))) == CORPUS.keys() - {"copy"}


def test_a_pool_has_each_text_once_whichever_copy_is_asked_for():
    pool = DocumentPool(np.array([0, 1, 1, 3, 4]), np.array([2, 4]))  # row 2 is a copy of row 1, row 4 has no text
    assert pool.holds(np.arange(5)).tolist() == [True, True, True, True, False]
    only = pool.only(np.array([2, 3, 4]))
    assert only.doc_rows(np.arange(len(only))).tolist() == [1, 3]
    assert pool.others(np.array([1, 2, 4])) == 2


def test_the_mask_of_a_batch_knows_copies_and_the_query_itself(data, static_model):
    built = training_set(data, static_model)
    rows = np.arange(len(CORPUS))
    assert data.corpus.ids(rows[built.negatives.known.contains(np.zeros(len(rows), dtype=np.int64), rows)]) == KNOWN


def copied(n: int, repeats_of: Sequence[int], what: str) -> RetrievalData:
    """Make n queries with one document each. Query i, or document i, gets the text number ``repeats_of[i]``."""
    documents = {f"d{i}": f"document {repeats_of[i] if what == 'documents' else i}" for i in range(n)}
    queries = {f"q{i}": f"query {repeats_of[i] if what == 'queries' else i}" for i in range(n)}
    train = {f"q{i}": {f"d{i}": 1} for i in range(n)}
    return data_from_dicts("copies", corpus=documents, queries=queries, qrels={"train": train})


def texts(data: RetrievalData, split: str) -> tuple[set[str], set[str]]:
    relevant = data.split(split).relevant()
    return set(data.queries.texts(relevant.query_rows)), set(data.corpus.texts(relevant.doc_rows))


@settings(max_examples=40)
@given(
    repeats_of=st.lists(st.integers(0, 11), min_size=12, max_size=24),
    what=st.sampled_from(["documents", "queries"]),
    expected_documents=st.sampled_from(["new", "known", "both"]),
    seed=st.integers(0, 5),
)
def test_no_text_of_a_drawn_split_trains(repeats_of, what, expected_documents, seed):
    data = copied(len(repeats_of), repeats_of, what)
    if len(set(data.query_group)) < 4 or len(set(data.document_group)) < 4:
        return
    drawn = with_drawn_splits(
        data, seed=seed, test_fraction=0.25, needs_dev=True, expected_documents=expected_documents
    )
    train_queries, train_documents = texts(drawn, "train")
    for split in ("test", "dev"):
        queries, documents = texts(drawn, split)
        assert not queries & train_queries
        judged = [drawn.corpus.texts([row])[0] for row in drawn.split(split).relevant().doc_rows]
        share = np.mean([text in train_documents for text in judged])
        assert known_fraction(drawn, split) == pytest.approx(share), "the note reports this share"
        if expected_documents == "new" and what == "queries":
            assert not documents & train_documents


def test_held_out_documents_neither_train_nor_become_negatives(static_model):
    """Query n has the texts n and n + 1, in two spellings, so each new document leaves a query that trains."""
    n = 30
    corpus = {f"d{i}": f"t{i % 12}w1 x{i}" for i in range(n)} | {f"e{i}": f"t{i % 12}w1  x{i}" for i in range(n)}
    train = {f"q{i}": {f"d{i}": 1, f"e{(i + 1) % n}": 1} for i in range(n)}
    queries = {f"q{i}": f"t{i % 12}w2 y{i}" for i in range(n)}
    data = data_from_dicts("ring", corpus=corpus, queries=queries, qrels={"train": train})
    settings = {"expected_documents": "new", "negatives": "hard", "range": (1, 2 * n), "keep": 2 * n}
    prepared = prepare(data, static_model, **settings, method="ft", max_steps=2)
    built = build_training_set(prepared)
    number = np.arange(2 * n) % n
    before, drawn = data.split("train"), built.mixture.joined
    labels = set(zip(before.query_index.tolist(), number[before.doc_rows].tolist(), strict=True))
    pairs, lists = built.pairs, built.negatives.lists
    rows = built.train.query_rows
    trained = set(zip(rows[pairs.pair_query].tolist(), number[pairs.pair_doc].tolist(), strict=True))
    mined = set(zip(rows[lists.queries].tolist(), number[lists.doc_rows].tolist(), strict=True))
    assert trained < {(query, document) for query, document in labels if query in rows}, "some left train"
    for split in ("test", "dev"):
        assert not {*number[drawn.split(split).doc_rows]} & {document for _, document in trained}
    test = drawn.split("test")
    assert (np.diff(test.offsets) == 2).all(), "both documents of a query are new"
    again, tested = prepared.data.with_dev_restored.joined.split("train"), {*number[test.doc_rows]}
    restored = set(zip(again.query_rows[again.query_index].tolist(), number[again.doc_rows].tolist(), strict=True))
    assert restored == {(query, document) for query, document in labels if document not in tested}
    assert mined == {(query, document) for query in rows.tolist() for document in range(n)} - labels


@pytest.mark.parametrize("expected_documents", ["new", "known"])
def test_what_a_set_holds_out_does_not_train_through_another(expected_documents):
    """The second set has the same queries with other documents, and asks about the first set's documents."""
    first = copied(30, range(30), "queries")
    corpus = {f"e{i}": f"document {i}" for i in range(30)} | {f"x{i}": f"other {i}" for i in range(30)}
    queries = {f"r{i}": f"question {i}" for i in range(30)} | {f"s{i}": f"query {i}" for i in range(30)}
    train = {f"r{i}": {f"e{i}": 1} for i in range(30)} | {f"s{i}": {f"x{i}": 1} for i in range(30)}
    second = data_from_dicts("second", corpus=corpus, queries=queries, qrels={"train": train})
    before = Mixture.of(first, second)
    drawn = draw_missing_splits(
        before, seed=0, test_fraction=0.2, needs_dev=True, expected_documents=expected_documents
    )
    trained = [texts(part, "train") for part in drawn.data_sets]
    for part in drawn.data_sets:
        for split in ("test", "dev"):
            queries_of_split, documents = texts(part, split)
            assert all(not queries_of_split & other for other, _ in trained)
            assert all(not documents & other for _, other in trained)
    tested, chosen_on = (texts(drawn.joined, split)[0] for split in ("test", "dev"))
    assert not tested & chosen_on, "λ is chosen on other queries than test's"
    assert any("another data set holds out" in note for note in drawn.joined.notes)
    held_out = sum(len(part.held_out.doc_rows) for part in drawn.data_sets if part.held_out is not None)
    assert held_out == 90 - sum(len(part.splits[name].doc_rows) for part in drawn.data_sets for name in part.splits)


def test_a_list_of_wrong_pairs_drops_their_copies(data, tmp_path):
    path = tmp_path / "wrong.csv"
    path.write_text("query_id,doc_id,decision\nb,copy,wrong\n")
    train = with_decisions(Mixture.of(data), [path]).joined.split("train")
    assert sorted(data.queries.ids(train.query_rows[train.query_index])) == ["b", *(f"q{n}" for n in range(4))]


def test_a_document_that_is_the_query_is_left_out_of_its_ranking(static_model):
    """By id and text, as in ArguAna: neither by the id alone, nor if it is relevant; with or without its title."""
    corpus = {"same": "t1w1 t1w2", "id": "t2w1 t2w2", "relevant": "t3w1 t3w2", "answer": "t1w1 t1w3"}
    queries = {"same": "t1w1  t1w2", "id": "t4w1 t4w2", "relevant": "t3w1 t3w2", "alone": "t1w1 t1w2"}
    corpus |= {"titled": "t5w1", "whole": "t6w1"}
    queries |= {"titled": "t5w1", "whole": "common1 t6w1"}
    judged = {name: {"answer": 1} for name in queries} | {"relevant": {"relevant": 1}}
    judged["same"]["same"] = 0
    data = with_title(data_from_dicts("arguments", corpus=corpus, queries=queries, qrels={"test": judged}))
    rows = documents_that_are_queries(data, data.split("test"))
    names = data.queries.ids(data.split("test").query_rows)
    assert {name: row for name, row in zip(names, rows.tolist(), strict=True) if row >= 0} == {
        "same": 0,
        "titled": 4,
        "whole": 5,
    }
    result = opera.evaluate(data, model=static_model, measures=["RR@10"])
    reciprocal = dict(zip(names, result.per_query["RR@10"].tolist(), strict=True))
    assert reciprocal["same"] == 1, "the answer is first once the query itself is left out"
    assert reciprocal["alone"] == 0.5
    assert reciprocal["relevant"] == 1


def test_positives_of_another_data_set_are_no_negatives(data, static_model):
    """The second set asks the same queries, has copies of the first set's documents, and other positives."""
    corpus = {f"c{name}": text for name, text in CORPUS.items()} | {f"n{n}": f"t{n}w7 new{n}" for n in range(9)}
    queries = {f"c{name}": text for name, text in QUERIES.items()}
    qrels = {
        split: {f"c{query}": {f"n{n}": 1} for n, query in enumerate(judged)}
        for split, judged in (("train", TRAIN), ("test", TEST))
    }
    other = data_from_dicts("other", corpus=corpus, queries=queries, qrels=qrels)
    mixture = Mixture.of(data, other)
    both = mixture.joined
    built = training_set(mixture, static_model, negatives="hard", range="1:20")

    def texts_of_pairs(queries: np.ndarray, documents: np.ndarray) -> set[tuple[str, str]]:
        pairs = zip(both.queries.texts(built.train.query_rows[queries]), both.corpus.texts(documents), strict=True)
        return {(" ".join(query.split()), " ".join(document.split())) for query, document in pairs}

    negatives = texts_of_pairs(built.negatives.lists.queries, built.negatives.lists.doc_rows)
    assert negatives
    assert not negatives & texts_of_pairs(built.pairs.pair_query, built.pairs.pair_doc)
