"""Drawing splits from train, at random or with documents that are new to it."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opera.core.errors import DataError
from opera.data import Mixture, Qrels, RetrievalData, load_data
from opera.data.retrieval_data import with_relevant_grade
from opera.data.splits import (
    asks_about_known,
    assumed_documents,
    copy_splits,
    draw_missing_splits,
    held_out_count,
    hold_out,
    known_fraction,
    recurring_fraction,
)
from tiny_world import data_from_dicts, with_drawn_splits

FUTURES = ("known", "new", "both", "like-test")

judgements = st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=4), min_size=4, max_size=24)


def make_data(positives: list[set[int]], test: list[set[int]] | None = None) -> RetrievalData:
    qrels = {"train": {f"q{n}": {f"d{d}": 1 for d in docs} for n, docs in enumerate(positives)}}
    if test is not None:
        qrels["test"] = {f"t{n}": {f"d{d}": 1 for d in docs} for n, docs in enumerate(test)}
    names = [name for split in qrels.values() for name in split]
    size = 1 + max(max(docs) for docs in [*positives, *(test or [])])
    return data_from_dicts(
        "mine",
        corpus={f"d{d}": f"document {d}" for d in range(size)},
        queries={name: name for name in names},
        qrels=qrels,
    )


def pairs_in(qrels: Qrels) -> set[tuple[int, int]]:
    return set(zip(qrels.query_rows[qrels.query_index].tolist(), qrels.doc_rows.tolist(), strict=True))


def test_known_documents_are_relevant_texts_of_train():
    """Neither ids nor judgements of 0 decide: documents a and c are copies, and so are queries one and two."""
    train = {"one": {"a": 1, "b": 0, "d": 1}, "two": {"c": 1, "d": 1}, "three": {"c": 1, "e": 1}}
    test = {"half": {"c": 1, "b": 1, "e": 0}, "new": {"b": 1}}
    data = data_from_dicts(
        "copies",
        corpus={"a": "x", "b": "y", "c": " x", "d": "z", "e": "w"},
        queries={"one": "u", "two": "u ", "three": "v", "half": "s", "new": "t"},
        qrels={"train": train, "test": test},
    )
    assert known_fraction(data, "test") == 1 / 3
    assert asks_about_known(data, data.split("test"), data.split("train")).tolist() == [True, False]
    assert recurring_fraction(data, data.split("train")) == 3 / 6, "two queries ask for x, one for z and one for w"


def test_dev_is_a_tenth_from_100_to_1000_queries_but_at_most_a_quarter():
    sizes = {40: 10, 400: 100, 1000: 100, 5000: 500, 20_000: 1000}
    assert {queries: held_out_count(queries) for queries in sizes} == sizes
    assert [held_out_count(10, 0.01), held_out_count(10, 0.3), held_out_count(2, 0.9)] == [1, 3, 1]


def test_held_out_queries_leave_train(beir):
    data = load_data(beir)
    held = hold_out(data, "dev", 0.25, seed=1)
    assert held.split("dev").n_queries == 10
    assert not set(held.split("dev").query_rows) & set(held.split("train").query_rows)
    assert held.split("train").n_queries == 30
    assert "moved 10 of the 40 train queries to dev (known, seed 1)" in held.notes[-1]
    assert np.array_equal(held.split("dev").query_rows, hold_out(data, "dev", 0.25, 1).split("dev").query_rows)
    assert not np.array_equal(held.split("dev").query_rows, hold_out(data, "dev", 0.25, 2).split("dev").query_rows)


def test_only_missing_splits_are_drawn(beir):
    data = load_data(beir)
    assert with_drawn_splits(data, seed=0, test_fraction=0.1) is data
    drawn = with_drawn_splits(
        data, seed=0, test_fraction=0.1, needs_dev=True, dev_fraction=0.25, expected_documents="known"
    )
    assert drawn.split("test") is data.split("test")
    assert drawn.split("dev").n_queries == 10
    train_only = make_data([{0}] * 20)
    both = with_drawn_splits(train_only, seed=0, test_fraction=0.2, needs_dev=True, dev_fraction=0.25)
    assert {name: qrels.n_queries for name, qrels in both.splits.items()} == {"train": 12, "test": 4, "dev": 4}
    assert len(both.notes) == 3


def test_queries_without_a_relevant_document_are_not_drawn():
    data = make_data([{0}] * 50)
    data.split("train").grades[2:] = 0
    held = hold_out(data, "test", 0.9, seed=0)
    assert held.split("test").n_queries == 1
    assert held.split("train").relevant().n_queries == 1
    with pytest.raises(DataError):
        hold_out(held, "dev", 0.5, seed=0)


def test_copied_splits_keep_the_original_grades(beir):
    data = load_data(beir)
    changed = hold_out(with_relevant_grade(data, 2), "dev", 0.25, seed=1)
    again = copy_splits(data, source=changed)
    assert again.notes == changed.notes
    for name in ("train", "dev", "test"):
        assert np.array_equal(again.split(name).query_rows, changed.split(name).query_rows)
    assert again.split("test") is data.split("test")
    assert (again.split("dev").grades == 1).any()


@given(judgements, st.sampled_from(FUTURES), st.integers(0, 3))
@example([{*range(10)}, {0}, {1}, {2}], "new", 0)  # without the documents of the first query, no pair is left
def test_no_judgement_is_lost_and_no_query_is_in_two_splits(positives, expected_documents, seed):
    data = make_data(positives, [{0}, {1, 2}])
    train = data.split("train")
    train.grades[(train.query_index + train.doc_rows) % 5 == 4] = 0  # judged, and not relevant
    relevant = train.relevant()
    try:
        held = hold_out(data, "dev", 0.3, seed, expected_documents)
    except DataError:
        assert relevant.n_queries < 2
        return
    train, dev, before = (pairs_in(split) for split in (held.split("train"), held.split("dev"), data.split("train")))
    gone = set() if held.held_out is None else pairs_in(held.held_out)
    assert gone <= pairs_in(relevant)
    assert train | dev | gone == before
    assert len(train) + len(dev) + len(gone) == len(before)
    tested = {query for query, _ in dev}
    assert 0 < len(tested) <= held_out_count(relevant.n_queries, 0.3)
    assert held.split("train").has_relevant.any()
    assert not {query for query, _ in train} & tested
    lost = {(query, document) for query, document in gone if query not in tested}
    assert {document for _, document in lost} <= {document for _, document in dev}
    assert len(lost) <= 0.3 * len(before)


def test_whole_components_are_held_out_where_the_graph_has_many():
    data = make_data([{n % 12} for n in range(48)] + [{20, 21}] * 24)
    held = hold_out(data, "dev", 1 / 6, 0, "new")
    assert held.split("dev").n_queries == 12
    assert held.held_out is None
    assert known_fraction(held, "dev") == 0.0


def test_documents_are_held_out_where_the_graph_is_one_piece():
    chain = [{n % 11, n % 11 + 1} for n in range(66)] + [{n % 12} for n in range(24)] + [{20}]
    held = hold_out(make_data(chain), "dev", 0.1, 0, "new")
    assert known_fraction(held, "dev") == 0.0
    assert held.split("dev").n_queries >= 5, "the one other piece has too few queries"
    dev = held.split("dev").query_rows
    others = int((~np.isin(held.held_out.query_rows[held.held_out.query_index], dev)).sum())
    assert f"removed {others} pairs with held-out documents from train" in held.notes[-1]
    copied = copy_splits(make_data(chain), source=held)
    for select in (lambda part: part.split("train"), lambda part: part.split("dev"), lambda part: part.held_out):
        assert pairs_in(select(copied)) == pairs_in(select(held))


@pytest.mark.parametrize(
    ("test", "expected"), [([{0}, {1}], 1.0), ([{0}] * 14 + [{11}], 1.0), ([{10}, {11}], 0.0)]
)  # 14 of 15 known documents are as many as all of them
def test_like_test_is_as_new_as_test(test, expected):
    data = make_data([{n % 10} for n in range(60)], test)
    held = with_drawn_splits(data, seed=0, test_fraction=0.1, needs_dev=True)
    assert known_fraction(held, "dev") == expected
    assert "(like-test, seed 0)" in held.notes[-1]


def test_like_test_mixes_known_and_new_documents():
    """Half of the documents are of one query. Of 30 test documents, train has 9."""
    train = [{n % 10} for n in range(40)] + [{10 + n} for n in range(40)]
    data = make_data(train, [{n} for n in range(9)] + [{50}] * 21)
    fractions = [
        known_fraction(with_drawn_splits(data, seed=seed, needs_dev=True, dev_fraction=0.25), "dev")
        for seed in range(12)
    ]
    # one draw has a standard deviation of √(12 · ½ · ½) / 20 = 0.09, their mean 0.025
    assert np.mean(fractions) == pytest.approx(0.3, abs=0.075)


def test_both_draws_as_many_queries_about_known_documents_as_about_new_ones():
    held = hold_out(make_data([{n % 6} for n in range(60)] + [{6 + n} for n in range(6)]), "dev", 0.2, 0, "both")
    known = asks_about_known(held, held.judged_qrels("dev"), held.training_split())
    assert 5 <= known.sum() <= 8
    assert 5 <= (~known).sum() <= 8


def test_queries_are_judged_by_their_rare_documents_where_the_others_cannot_leave_train():
    """Documents 0 to 2 are of every query: without them nothing would be left to train on. Each query has a copy."""
    data = data_from_dicts(
        "rare",
        corpus={f"d{d}": f"document {d}" for d in range(12)},
        queries={f"q{n}": f"query {n % 18}" for n in range(36)},
        qrels={"train": {f"q{n}": {f"d{d}": 1 for d in (0, 1, 2, 3 + n % 9)} for n in range(36)}},
    )
    held = hold_out(data, "dev", 0.1, 0, "new")
    assert known_fraction(held, "dev") == 0.0
    assert held.split("dev").n_queries == 4
    assert {0, 1, 2} <= set(held.split("train").doc_rows.tolist())
    assert held.held_out is not None
    assert copy_splits(data, source=held).split("train").n_queries == held.split("train").n_queries


def test_a_set_loses_the_pairs_whose_documents_are_new_in_the_dev_split_of_another():
    """Both have texts a0, a1, ... for their queries, and x for all of them; nothing but ``a`` is ever new."""
    n, sets = 20, []
    for name in "st":
        corpus = {f"{name}{kind}{i}": f"{kind}{i}" for kind in "az" for i in range(n)} | {f"{name}x": "x"}
        first = {f"{name}{i}": {f"{name}a{i}": 1, f"{name}x": 1} for i in range(n)}
        for i in range(n):
            first[f"{name}{i}"] |= {f"{name}a{(i + 1) % n}": 0, f"{name}z{i}": 0} if name == "s" else {f"{name}z{i}": 1}
        other = {f"{name}w{i}": {f"{name}a{i}": 0, f"{name}x": 1} for i in range(n)} if name == "t" else {}
        qrels = {"train": first | other, "test": {f"{name}test": {f"{name}z0": 1}}}
        queries = {query: query for split in qrels.values() for query in split}
        sets.append(data_from_dicts(name, corpus=corpus, queries=queries, qrels=qrels))
    drawn = draw_missing_splits(Mixture.of(*sets), seed=0, needs_dev=True, expected_documents="known").data_sets
    dev = [{*part.split("dev").query_rows.tolist()} for part in drawn]
    for part, own, others in zip(drawn, dev, reversed(dev), strict=True):
        gone = {number for number in others if number < n} - own
        assert gone
        assert pairs_in(part.held_out) == {(number, number) for number in gone}


def test_without_a_test_split_train_says_what_is_assumed():
    known, new = make_data([{n % 10} for n in range(60)]), make_data([{n} for n in range(12)])
    assert (recurring_fraction(known, known.training_split()), assumed_documents(known)) == (1.0, "known")
    assert (recurring_fraction(new, new.training_split()), assumed_documents(new)) == (0.0, "new")
    drawn = with_drawn_splits(known, seed=0, test_fraction=0.1, needs_dev=True)
    assert drawn.notes[0].startswith("no test split is given, so OPERA expects future queries about known documents")
    assert [known_fraction(drawn, split) for split in ("test", "dev")] == [1.0, 1.0]
    told = with_drawn_splits(known, seed=0, test_fraction=0.1, needs_dev=True, expected_documents="new")
    assert [known_fraction(told, split) for split in ("test", "dev")] == [0.0, 0.0]
    assert not any("no test split" in note for note in told.notes)
    with pytest.raises(DataError, match="has no split 'test', which --expected-documents like-test needs"):
        with_drawn_splits(known, seed=0, test_fraction=0.1, expected_documents="like-test")


@pytest.mark.parametrize("expected_documents", [None, *FUTURES])
def test_a_dev_split_of_the_user_is_used_whatever_test_holds(expected_documents):
    data = make_data([{n % 10} for n in range(8)], [{10}, {11}])
    data.splits["dev"] = data.split("train").select_queries(np.arange(8) < 2)
    settings = {"test_fraction": 0.1, "needs_dev": True, "expected_documents": expected_documents}
    assert with_drawn_splits(data, seed=0, **settings) is data


@pytest.mark.parametrize("expected_documents", ["known", "new", "both"])
def test_a_new_export_keeps_nearly_all_test_queries(expected_documents):
    """A week later, 20 of 400 questions are new, and the rows have another order, so all ids differ."""
    rng = np.random.default_rng(0)
    questions = {f"question {number}": f"answer {rng.integers(200)}" for number in range(400)}
    old = dict(list(questions.items())[:380])
    shuffled = {question: questions[question] for question in rng.permutation(list(questions)).tolist()}
    kept = questions_of_test(old, expected_documents) & questions_of_test(shuffled, expected_documents)
    assert len(kept) >= 0.9 * len(questions_of_test(old, expected_documents))


def questions_of_test(answers: dict[str, str], expected_documents: str) -> set[str]:
    """Draw a test split of a table without ids, and return its questions."""
    documents = {answer: f"d{row}" for row, answer in enumerate(dict.fromkeys(answers.values()))}
    data = data_from_dicts(
        "export",
        corpus={name: answer for answer, name in documents.items()},
        queries={f"q{row}": question for row, question in enumerate(answers)},
        qrels={"train": {f"q{row}": {documents[answer]: 1} for row, answer in enumerate(answers.values())}},
    )
    drawn = with_drawn_splits(data, seed=0, test_fraction=0.1, expected_documents=expected_documents)
    return set(data.queries.texts(drawn.split("test").query_rows))
