"""Decisions about labels: which pairs leave train and dev, which are added, which are never doubted again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import Mixture, RetrievalData, load_all, load_data
from opera.data.copies import text_keys
from opera.data.decisions import read_decisions, with_decisions
from opera.data.id_lists import cut
from opera.data.retrieval_data import with_relevant_grade
from tiny_world import data_from_dicts, judged, with_drawn_splits

Row = tuple[str, ...]
SUSPICIOUS = "query_id,doc_id,probability_wrong"


def relevant(data: RetrievalData, split: str) -> set[tuple[str, str]]:
    return {(query, document) for query, document, grade in judged(data, split) if grade > 0}


def decided(data: RetrievalData, paths: Sequence[Path]) -> RetrievalData:
    return with_decisions(Mixture.of(data), paths).joined


def write(path: Path, rows: list[Row], columns: str = "query_id,doc_id,decision") -> Path:
    path.write_text(columns + "\n" + "".join(",".join(row) + "\n" for row in rows))
    return path


def test_wrong_pairs_leave_train_and_dev_missing_ones_enter_and_test_stays(make_beir, tmp_path):
    data = load_data(make_beir(dev=True))
    train, dev, test = (relevant(data, split) for split in ("train", "dev", "test"))
    wrong = [min(train), min(dev), min(test)]
    query, other = max(train)[0], min(dev)[1]
    rows = [(*pair, "wrong") for pair in wrong] + [(query, other, " Missing "), (*max(train), "correct")]
    path = write(
        tmp_path / "d.csv", [*rows, (*sorted(train)[3], ""), (*sorted(train)[4], "unsure"), ("q", "d", "wrong")]
    )
    mixture = with_decisions(Mixture.of(data), [path])
    changed = mixture.joined
    assert relevant(changed, "train") == train - {wrong[0]} | {(query, other)}
    assert relevant(changed, "dev") == dev - {wrong[1]}
    assert relevant(changed, "test") == test
    assert changed.notes[-2] == f"{path}: 5 of 6 decisions match {data.title}; OPERA ignores query 'q', document 'd'"
    in_test = "1 about pairs that are now in test, and are not used"
    assert changed.notes[-1] == f"2 pairs removed, 1 added, 1 confirmed by {path}, {in_test}"
    confirmed = np.isin(text_keys(changed, changed.split("train")), mixture.decided[0].confirmed)
    assert confirmed.sum() == 2  # the correct pair and the one that was missing


def test_a_decision_may_lack_its_first_rank_which_is_a_fraction(make_beir, tmp_path):
    data = load_data(make_beir())
    pairs = sorted(relevant(data, "train"))[:6]
    ranks = ("0.9", "", "0.8", "0.6", "0.4", "1")
    rows = [(*pair, "wrong", rank) for pair, rank in zip(pairs, ranks, strict=True)]
    path = write(tmp_path / "d.csv", rows, "query_id,doc_id,decision,first_rank")
    changed = with_decisions(Mixture.of(data), [path])
    assert relevant(changed.joined, "train") == relevant(data, "train") - {*pairs}
    assert changed.decided[0].removed_excess == 4 - 1  # four above ½, one below, one unknown
    write(path, [("train0", "d0", "wrong", "7")], "query_id,doc_id,decision,first_rank")
    with pytest.raises(DataError, match=r"d\.csv:2: column 'first_rank' must be from 0 to 1, got 7"):
        decided(data, [path])


def test_an_added_label_weighs_as_much_as_the_mean_label(tmp_path):
    pairs = [{"query": f"q{n}", "document": f"d{n}", "weight": 10 * n} for n in range(1, 6)]
    data = load_data(pairs=pairs)
    path = write(tmp_path / "d.csv", [("q0", "d1", "missing")])
    train = decided(data, [path]).split("train")
    assert train.weights[train.query_index == 0].tolist() == [10, 30]


def test_a_list_of_suspicious_pairs_is_all_wrong(make_beir, tmp_path):
    data = load_data(make_beir())
    pairs = sorted(relevant(data, "train"))
    paths = [
        write(tmp_path / f"{name}.csv", [(*pair, "0.9") for pair in listed], header)
        for name, header, listed in (
            ("first", SUSPICIOUS, pairs[:3]),
            ("second", "Query ID,doc-id,Probability wrong", pairs[2:4]),
        )
    ]
    changed = with_decisions(Mixture.of(data), paths)
    assert relevant(changed.joined, "train") == {*pairs[4:]}
    assert not len(changed.decided[0].confirmed)


def test_decisions_about_test_change_no_training(make_beir, tmp_path):
    data = load_data(make_beir())
    pair = min(relevant(data, "train"))
    path = write(tmp_path / "d.csv", [(*pair, "wrong", "test")], "query_id,doc_id,decision,split")
    changed = decided(data, [path])
    assert relevant(changed, "train") == relevant(data, "train")
    assert changed.notes[-1].endswith("training ignores 1 decision about test")
    decisions, _ = read_decisions(Mixture.of(data), [path])
    assert decisions.of_test.tolist() == [True]


def test_a_list_that_changes_nothing_or_leaves_nothing_is_refused(make_beir, tmp_path):
    data = load_data(make_beir())
    without_train = replace(data, splits={"test": data.splits["test"]})
    for refusing, split, problem in (
        (data, "test", "has no decision about a query of train or dev"),
        (data, "train", "no pair is left to train on"),
        (without_train, "test", "has no split 'train'"),
    ):
        path = write(tmp_path / "list.csv", [(*pair, "0.9") for pair in sorted(relevant(data, split))], SUSPICIOUS)
        with pytest.raises(DataError, match=problem):
            decided(refusing, [path])


def test_judgements_of_irrelevant_are_no_labels(tmp_path):
    """A missing label replaces one, a wrong pair does not count as removed, and test's keep no document out."""
    train = {"a": {"one": 1, "two": 0}, "b": {"one": 1, "three": 0}}
    test = {"t": {"one": 1, "four": 0, "five": 1}}
    corpus = {name: name for name in ("one", "two", "three", "four", "five")} | {"copy": " five"}
    queries = {name: name for name in "abt"}
    data = data_from_dicts("m", corpus=corpus, queries=queries, qrels={"train": train, "test": test})
    missing = [("a", "two"), ("b", "four"), ("b", "copy")]
    rows = [(*pair, "missing", "") for pair in missing] + [("b", "three", "wrong", "0.9")]
    path = write(tmp_path / "d.csv", rows, "query_id,doc_id,decision,first_rank")
    changed = with_decisions(Mixture.of(data), [path])
    pairs = [("a", "one", 1), ("a", "two", 1), ("b", "one", 1), ("b", "four", 1)]
    assert judged(changed.joined, "train") == pairs
    assert changed.joined.notes[-1].startswith(f"0 pairs removed, 2 added, 0 confirmed by {path}, 1 not added")
    (about,) = changed.decided
    assert (len(about.confirmed), len(about.rejected), about.removed_excess) == (3, 1, 0)


def test_decisions_about_copies_contradict_each_other_but_not_those_about_test(tmp_path):
    texts = {"corpus": {"one": "x", "two": " x"}, "queries": {"a": "a", "t": "t"}}
    data = Mixture.of(data_from_dicts("m", **texts, qrels={"train": {"a": {"one": 1}}, "test": {"t": {"one": 1}}}))
    rows = [("a", "one", "wrong", "test"), ("a", "two", "correct", "test"), ("a", "one", "correct", "")]
    path = write(tmp_path / "d.csv", rows, "query_id,doc_id,decision,split")
    assert read_decisions(data, [path], only_test=True)[0].relevant.tolist() == [False, True], "test has ids"
    with pytest.raises(DataError, match="is wrong in one row, and correct or missing in another"):
        read_decisions(data, [path])
    with pytest.raises(DataError, match="2 of 3 decisions match"):
        read_decisions(
            data,
            [write(path, [*rows, ("a", "gone", "wrong", "test")], "query_id,doc_id,decision,split")],
            only_test=True,
        )
    decisions, _ = read_decisions(data, [write(path, rows[::2], "query_id,doc_id,decision,split")])
    assert (decisions.relevant.tolist(), decisions.of_test.tolist()) == ([False, True], [True, False])


@pytest.mark.parametrize("name", ["query", "document"])
def test_a_list_of_other_texts_is_refused(name, make_beir, tmp_path):
    """Ids that number the rows of a file are those of others once a row is gone."""
    data, path = load_data(make_beir()), tmp_path / "list.csv"
    query, document = min(relevant(data, "train"))
    row = {
        "query_id": query,
        "doc_id": document,
        "query": data.queries.texts(data.queries.find_rows([query]))[0],
        "document": data.corpus.texts(data.corpus.find_rows([document]))[0][:9] + "…",
        "decision": "wrong",
    }
    decided(data, [write(path, [tuple(row.values())], ",".join(row))])
    row[name] = "another text"
    with pytest.raises(DataError, match=f"{name} .* is 'another text'"):
        decided(data, [write(path, [tuple(row.values())], ",".join(row))])


def test_decisions_survive_a_new_export_with_other_row_numbers(tmp_path):
    """Ids that are row numbers change with a new order and with more rows."""
    pairs = [(f"question {number}", f"answer {number} " + "word " * 500) for number in range(12)]
    data = load_data(pairs)
    columns = data.queries.ids(), data.corpus.ids(), data.queries.texts(), data.corpus.texts()
    rows = [(*row[:3], cut(row[3], 200), "wrong") for row in zip(*columns, strict=True)][:8]
    names = "query_id,doc_id,query,document,decision"
    path = write(tmp_path / "d.csv", [*rows, ("1", "1", "question 2", "gone", "wrong")], names)
    exported = [("new", "new"), *reversed(pairs), (" question  1", pairs[1][1])]
    changed = decided(load_data(exported), [path])
    assert changed.notes[-2] == (
        f"{path}: 8 of 9 decisions match {changed.title} (7 by text, as their ids do not match); "
        "OPERA ignores query 'question 2', document 'gone'"
    )
    split = changed.split("train")
    assert sorted(changed.queries.texts(split.query_rows[split.query_index])) == [
        "new", "question 10", "question 11", "question 8", "question 9",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "removed"), [("the same start…", 0), ("the same start, a", 1), ("the same start, b…", 2)]
)
def test_a_shortened_text_stands_for_one_text_and_its_copies(shown, removed, tmp_path):
    rows = [("q", "the same start, a"), ("q", "the same start, b"), ("q", "the same  start, b"), ("r", "other")]
    documents = {str(row): text for row, (_, text) in enumerate(rows)}
    qrels = {"train": {"q": {"0": 1, "1": 1, "2": 1}, "r": {"3": 1}}, "test": {"r": {"3": 1}}}
    data = data_from_dicts("m", corpus=documents, queries={"q": "a query", "r": "r"}, qrels=qrels)
    row = ("x", "x", "a query", shown.replace(",", ";"), "wrong")
    path = write(
        tmp_path / "d.csv", [row, ("r", "3", "r", "other", "correct")], "query_id,doc_id,query,document,decision"
    )
    path.write_text(path.read_text().replace(shown.replace(",", ";"), f'"{shown}"'))
    assert len(relevant(data, "train")) - len(relevant(decided(data, [path]), "train")) == removed


def test_a_second_round_may_confirm_what_the_first_added(make_beir, tmp_path):
    data = load_data(make_beir())
    train = relevant(data, "train")
    query, document = max(train)[0], next(doc for _, doc in sorted(train) if (max(train)[0], doc) not in train)
    rounds = [write(tmp_path / f"{kind}.csv", [(query, document, kind)]) for kind in ("missing", "correct")]
    for paths in (rounds, rounds[1:]):
        changed = decided(data, paths)
        assert relevant(changed, "train") == train | {(query, document)}


def test_documents_that_are_held_out_are_not_added_to_train(tmp_path):
    """Plain questions and answers: each answer is named once, and test is to hold new documents."""
    data = load_data(queries=[f"question {row}" for row in range(40)], documents=[f"answer {row}" for row in range(40)])
    data = with_drawn_splits(data, seed=0, test_fraction=0.2, needs_dev=False)
    train = data.split("train")
    data = data.hold_out_pairs(train.select_judgements(train.doc_rows == train.doc_rows[-1]))
    (held_out,) = data.corpus.ids(data.held_out.doc_rows)
    query, (_, document) = min(relevant(data, "train"))[0], min(relevant(data, "test"))
    other = next(doc for name, doc in relevant(data, "train") if name != query)
    path = write(tmp_path / "d.csv", [(query, name, "missing") for name in (document, held_out, other)])
    changed = decided(data, [path])
    assert relevant(changed, "train") == relevant(data, "train") | {(query, other)}
    assert changed.notes[-1].endswith("2 not added, to hold their documents out of train")


def test_a_dev_query_gets_a_document_that_only_train_has(tmp_path):
    documents, queries = ({str(row): f"{kind} {row}" for row in range(3)} for kind in ("document", "query"))
    qrels = {"train": {"0": {"0": 1}}, "dev": {"1": {"1": 1}}, "test": {"2": {"2": 1}}}
    data = data_from_dicts("m", corpus=documents, queries=queries, qrels=qrels)
    changed = decided(data, [write(tmp_path / "d.csv", [("1", name, "missing") for name in ("0", "2")])])
    assert relevant(changed, "dev") == {("1", "1"), ("1", "0")}
    assert changed.notes[-1].endswith(", 1 not added, to hold their documents out of train")


@pytest.mark.parametrize("header", ["query_id,doc_id,verdict", f"{SUSPICIOUS},grade", "query_id,doc_id,decision"])
def test_a_table_without_decisions_is_refused(header, make_beir, tmp_path):
    """Only the list of suspicious pairs may lack decisions; a run's pairs.parquet has a column more than the list."""
    data = load_data(make_beir())
    rest = ("",) * (header.count(",") - 1)
    path = write(tmp_path / "d.csv", [(*pair, *rest) for pair in sorted(relevant(data, "train"))[:3]], header)
    with pytest.raises(DataError, match=r"column 'decision' is (missing|empty)"):
        decided(data, [path])


def test_each_table_of_a_folder_may_have_other_columns_in_upper_case(make_beir, tmp_path):
    data = load_data(make_beir())
    first, second, third, *_ = sorted(relevant(data, "train"))
    (tmp_path / "d").mkdir()
    write(tmp_path / "d" / "a.csv", [(*first, "correct")])
    write(tmp_path / "d" / "b.csv", [(*second, "0.9")], SUSPICIOUS)
    write(tmp_path / "d" / "c.csv", [("Correct", *third)], "DECISION ,Query ID,doc-id")
    changed = decided(data, [tmp_path / "d"])
    assert relevant(changed, "train") == relevant(data, "train") - {second}
    assert changed.notes[-1] == f"1 pair removed, 0 added, 2 confirmed by {tmp_path / 'd'}"


def test_fewer_than_half_matching_decisions_are_refused(make_beir, tmp_path):
    data = load_data(make_beir())
    pairs = sorted(relevant(data, "train"))[:6]
    for unknown in (3, 4):
        rows = [(f"0{query}" if row < unknown else query, doc, "correct") for row, (query, doc) in enumerate(pairs)]
        path = write(tmp_path / "d.csv", [*rows, ("nowhere", "nowhere", "")])
        if unknown == 3:
            note = decided(data, [path]).notes[-2]
            assert note.startswith(f"{path}: 3 of 6 decisions match {data.title}; OPERA ignores query ")
        else:
            with pytest.raises(DataError, match="2 of 6 decisions match"):
                decided(data, [path])


@pytest.mark.parametrize("grades", [(2, 3), (1, 3)])
def test_a_missing_label_gets_the_lowest_relevant_grade(grades, tmp_path):
    data = with_relevant_grade(load_data([("a query", "one", grades[0]), ("another", "two", grades[1])]), 2)
    path = write(tmp_path / "d.csv", [(data.queries.ids()[1], data.corpus.ids()[0], "missing")])
    train = decided(data, [path]).split("train").relevant()
    assert sorted(train.grades.tolist()) == [grade for grade in sorted((2, *grades)) if grade > 1]


def test_reading_options_of_the_data_apply_to_decisions(tmp_path):
    data = load_data([(f"frage {n}", f"antwort ä{n}") for n in range(4)])
    queries, documents, texts = data.queries.ids(), data.corpus.ids(), data.corpus.texts()
    rows = [*zip(queries, documents, texts, ["wrong", *["correct"] * 3], strict=True), ("", "d", "", "wrong")]
    lines = ["query_id,doc_id,document,decision", *map(",".join, rows)]
    path = tmp_path / "d.csv"
    path.write_bytes("\n".join(lines).encode("cp1252"))
    with pytest.raises(DataError, match="--encoding"):
        decided(data, [path])
    with pytest.raises(DataError, match=r"d\.csv:6: column 'query_id' must not be empty"):
        with_decisions(load_all([data], "cp1252", skip_bad_rows=False), [path])
    changed = with_decisions(load_all([data], "cp1252", skip_bad_rows=True), [path]).joined
    assert changed.notes[-1] == f"1 pair removed, 0 added, 3 confirmed by {path}"
    assert "left out 1 of 5 rows" in changed.notes[-2]


def test_a_wrong_pair_leaves_every_data_set_and_a_missing_one_enters_only_its_own(tmp_path):
    first = load_data([(f"query {n}", f"document {n}") for n in range(4)], name="first")
    second = load_data([(f"query {n}", f"document {n}") for n in (3, 2, 1, 9)], name="second")
    mixture = Mixture.of(first, second)
    names = [
        (f"{data.name}/{query}", f"{data.name}/{document}")
        for data in (first, second)
        for query, document in zip(data.queries.ids(), data.corpus.ids(), strict=True)
    ]
    wrong, missing = names[2], (names[4][0], names[7][1])
    path = write(tmp_path / "d.csv", [(*wrong, "wrong"), (*missing, "missing"), (*names[3], "correct")])
    changed = with_decisions(mixture, [path])
    removed = {wrong, names[5]}  # the second data set has the same pair
    assert relevant(changed.joined, "train") == {*names} - removed | {missing}
    assert [len(decided.confirmed) for decided in changed.decided] == [1, 1]
    assert changed.joined.notes[-1].endswith(f"2 pairs removed, 1 added, 2 confirmed by {path}")


def test_decisions_about_pairs_that_a_new_split_moved_to_test_are_counted(make_beir, tmp_path):
    data = load_data(make_beir())
    train, test = sorted(relevant(data, "train")), sorted(relevant(data, "test"))
    path = write(tmp_path / "d.csv", [(*pair, "wrong") for pair in (*train[:2], *test[:3])])
    note = decided(data, [path]).notes[-1]
    assert (
        note == f"2 pairs removed, 0 added, 0 confirmed by {path}, 3 about pairs that are now in test, and are not used"
    )
