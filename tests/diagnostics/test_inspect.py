"""``opera.inspect`` on data whose duplicates and leaks are known."""

import json
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.diagnostics.duplicates import word_overlap


def overlap(one: str, other: str) -> bool:
    return word_overlap(one, other) >= 0.8


def leaks_by_hand(data: opera.RetrievalData) -> tuple[int, int]:
    """Count test queries with a near-duplicate in train, and their pairs whose document is labelled for it."""
    train, test = data.training_split(), data.split("test").relevant()
    train_texts, near, leaked = data.queries.texts(train.query_rows), 0, 0
    for number, text in enumerate(data.queries.texts(test.query_rows)):
        rows = [row for row, other in enumerate(train_texts) if overlap(text, other)]
        known = {int(d) for row in rows for d in train.doc_rows[train.offsets[row] : train.offsets[row + 1]]}
        near += bool(rows)
        leaked += sum(int(d) in known for d in test.doc_rows[test.offsets[number] : test.offsets[number + 1]])
    return near, leaked


@pytest.fixture
def spoilt(make_beir) -> Path:
    """Topics with a copied document, one without a pair, a query of train repeated in test, and no dev."""
    folder = make_beir()
    corpus = (folder / "corpus.jsonl").read_text().splitlines()
    first = json.loads(corpus[0])
    added = [{**first, "_id": "copy"}, {"_id": "lone", "title": "", "text": "nobody asks about this"}]
    (folder / "corpus.jsonl").write_text("\n".join([*corpus, *map(json.dumps, added)]) + "\n")
    queries = (folder / "queries.jsonl").read_text().splitlines()
    asked = next(json.loads(line) for line in queries if json.loads(line)["_id"] == "train0")
    (folder / "queries.jsonl").write_text("\n".join([*queries, json.dumps({**asked, "_id": "repeated"})]) + "\n")
    train = [line.split("\t") for line in (folder / "qrels" / "train.tsv").read_text().splitlines()]
    labelled = next(doc for query, doc, _ in train if query == "train0")
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.write(f"repeated\t{labelled}\t1\n")
    return folder


def test_given_negatives_are_not_called_random(static_model):
    rows = [{"query": f"question {n}", "document": f"answer {n}", "negative": f"other {n}"} for n in range(300)]
    inspection = opera.inspect(opera.load_data(pairs=rows), model=static_model)
    assert inspection.negatives == "given"
    assert inspection.unlabelled == 300


def test_counts_grades_copies_and_leaks_are_those_counted_by_hand(spoilt, static_model):
    seen = opera.inspect(spoilt, model=static_model, show=5)
    data = opera.load_data(spoilt)
    assert seen.counts == data.counts()
    assert opera.inspect(spoilt, model=static_model, relevant_grade=2).grades == seen.grades
    assert sum(seen.grades["train"].values()) == len(data.split("train").doc_rows)
    assert seen.documents.copies == len(data.corpus) - len(set(data.corpus.texts()))
    assert seen.documents.near_duplicates == sum(
        any(overlap(a, b) for b in data.corpus.texts()[:i] + data.corpus.texts()[i + 1 :])
        for i, a in enumerate(data.corpus.texts())
    )
    leaks = seen.leaks["test"]
    assert (leaks.leaked_queries, leaks.leaked_pairs) == leaks_by_hand(data)
    train, test = data.training_split(), data.split("test").relevant()
    assert (leaks.queries, leaks.pairs) == (test.n_queries, len(test.doc_rows))
    known = np.isin(test.doc_rows, train.relevant().doc_rows)
    assert seen.seen["test"] == pytest.approx(known.mean())
    labelled = set(data.corpus.texts(np.unique(train.relevant().doc_rows)))
    assert seen.unlabelled == len(set(data.corpus.texts()) - labelled) > 0
    assert (seen.negatives == "labelled") == (seen.draws > 15)
    assert len(seen.suspicious) == 5
    beaten = [pair.closer_random_share for pair in seen.suspicious]
    assert beaten == sorted(beaten, reverse=True)
    assert opera.inspect(spoilt, model=static_model, show=5) == seen


def test_without_a_model_only_what_needs_similarity_is_left_out(spoilt, static_model):
    seen, judged = opera.inspect(spoilt), opera.inspect(spoilt, model=static_model)
    for name in ("counts", "grades", "notes", "seen", "unlabelled", "skipped"):
        assert getattr(seen, name) == getattr(judged, name), name
    assert (seen.model, seen.quality, seen.negatives, seen.lengths, seen.suspicious) == (None, None, None, (), ())
    assert seen.documents.copies == judged.documents.copies > 0
    assert seen.documents.checked == 0
    leak = seen.leaks["test"]
    assert leak.queries == judged.leaks["test"].queries
    data = opera.load_data(spoilt)
    train, test = (set(data.queries.texts(data.split(name).relevant().query_rows)) for name in ("train", "test"))
    assert leak.leaked_queries == len(train & test) > 0
    assert "repeated" in [example.id for example in leak.examples]
