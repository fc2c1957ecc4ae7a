"""Several data sets: their joined rows and ids, and splits of each."""

from dataclasses import replace

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import GivenNegatives, Mixture, Qrels, RetrievalData, TeacherScores, load_all, load_data
from opera.data.splits import copy_splits, draw_missing_splits
from tiny_world import data_from_dicts, with_drawn_splits, write_beir


def one(name: str, n: int) -> RetrievalData:
    """A set with n queries, each with the document of its number; the first also judges document 0 at grade 2."""
    return data_from_dicts(
        name,
        corpus={f"d{row}": f"{name} document {row}" for row in range(n + 1)},
        queries={f"q{row}": f"{name} query {row}" for row in range(n)},
        qrels={"train": {f"q{row}": {f"d{row + 1}": 1, **({"d0": 2} if row == 0 else {})} for row in range(n)}},
    )


def richer(data: RetrievalData) -> RetrievalData:
    """The same with everything else that data may bring."""
    train = data.split("train")
    return replace(
        data,
        splits={"train": replace(train, weights=np.arange(len(train.doc_rows), dtype=np.float32)), "test": train},
        held_out=Qrels.from_arrays(np.array([0]), np.array([2]), np.array([1])),
        given_negatives=GivenNegatives(np.arange(len(data.queries) + 1), np.full(len(data.queries), 1, dtype=np.int32)),
        teacher=TeacherScores.from_arrays(np.array([1, 0]), np.array([1, 2]), np.array([0.5, 2.0])),
    )


def judged(data: RetrievalData, qrels: Qrels | None) -> list[tuple[str, str, int, float]]:
    """Judgements by ids, with their weights."""
    if qrels is None:
        return []
    ids = data.queries.ids(qrels.query_rows[qrels.query_index]), data.corpus.ids(qrels.doc_rows)
    return list(zip(*ids, qrels.grades.tolist(), qrels.weights_or_ones().tolist(), strict=True))


def test_ids_have_the_name_in_front_and_texts_are_not_copied(tmp_path):
    stored = load_data(write_beir(tmp_path / "world", 20, 4, 4))
    mixture = Mixture.of(stored, one("b", 2))
    data = mixture.joined
    assert data.name == "world+b"
    assert data.queries.ids([0, len(stored.queries)]) == ["world/train0", "b/q0"]
    assert data.corpus.ids()[20:] == ["b/d0", "b/d1", "b/d2"]
    assert data.corpus.texts([3, 21]) == [stored.corpus.texts([3])[0], "b document 1"]
    assert data.corpus.find_rows(["b/d1", "d1"]).tolist() == [21, -1]
    before, after = stored.corpus.table["text"].chunk(0), data.corpus.table["text"].chunk(0)
    assert before.buffers()[2].address == after.buffers()[2].address, "the texts are those of the file"
    assert mixture.first_rows == [(0, 0), (len(stored.queries), 20)]


def test_joined_data_hold_the_judgements_negatives_and_scores_of_each_set():
    sets = [richer(one("a", 3)), one("b", 2), richer(one("c", 4))]
    mixture = Mixture.of(*sets)
    data = mixture.joined
    for select in (lambda part: part.splits["train"], lambda part: part.splits.get("test"), lambda part: part.held_out):
        rows = [(f"{part.name}/", row) for part in sets for row in judged(part, select(part))]
        assert judged(data, select(data)) == [(name + q, name + d, *values) for name, (q, d, *values) in rows]
    negatives, teacher = data.given_negatives, data.teacher
    assert negatives.offsets.tolist() == [0, 1, 2, 3, 3, 3, 4, 5, 6, 7]
    assert data.corpus.ids(negatives.doc_rows) == ["a/d1"] * 3 + ["c/d1"] * 4
    assert data.queries.ids(teacher.query_rows) == ["a/q0", "a/q1", "c/q0", "c/q1"]
    assert data.corpus.ids(teacher.doc_rows) == ["a/d2", "a/d1", "c/d2", "c/d1"]
    assert teacher.scores.tolist() == [2, 0.5, 2, 0.5]
    assert [part.name for part in mixture.with_relevant("test")] == ["a", "c"]
    assert Mixture.of(sets[0]).joined is sets[0]
    assert Mixture.of(*sets[:2], replace(sets[2], fingerprint="other")).joined.fingerprint != data.fingerprint


def test_splits_are_drawn_of_each_set_as_if_it_were_alone():
    sets = [one("a", 30), one("b", 20)]
    drawn = draw_missing_splits(Mixture.of(*sets), seed=3, test_fraction=0.2, needs_dev=True)
    copied = Mixture.of(*sets).map(copy_splits, drawn)
    for drawn_set, copied_set, part in zip(drawn.data_sets, copied.data_sets, sets, strict=True):
        alone = with_drawn_splits(part, seed=3, test_fraction=0.2, needs_dev=True)
        for split in ("train", "dev", "test"):
            expected = judged(alone, alone.split(split))
            assert judged(drawn_set, drawn_set.split(split)) == expected
            assert judged(copied_set, copied_set.split(split)) == expected
        assert {f"{part.name}: {note}" for note in alone.notes} <= {*drawn.joined.notes}


def test_joined_data_have_all_notes_and_the_prompt_that_all_share():
    first, second = (
        replace(one(name, 2), notes=(f"{name}: read so", "read otherwise"), query_prompt="p: ") for name in "ab"
    )
    both = Mixture.of(first, second).joined
    assert both.notes == ("a: read so", "a: read otherwise", "b: read so", "b: read otherwise")
    assert both.query_prompt == "p: "
    mixed = Mixture.of(first, replace(second, query_prompt=None)).joined
    assert mixed.query_prompt is None
    assert mixed.notes[-1].startswith("the data sets have different query prompts, so OPERA uses none")


def test_equal_data_sets_and_a_mixture_beside_another_are_refused():
    both = Mixture.of(one("a", 2), one("b", 2))
    for sets in ([one("a", 2), one("a", 2)], [one("a", 2), replace(one("a", 2), source="b")], [both, one("c", 2)]):
        with pytest.raises(DataError):
            load_all(sets)
    assert load_all([both]).data_sets is both.data_sets


def test_names_differ_and_have_no_slash_since_ids_are_set_and_id():
    mixture = Mixture.of(replace(one("b", 2), name="a/b"), one("a", 2), one("a-b", 3), one("a-b", 4))
    names = ["a-b", "a", "a-b-2", "a-b-3"]
    assert [data_set.name for data_set in mixture.data_sets] == names
    assert list(dict.fromkeys(query.partition("/")[0] for query in mixture.joined.queries.ids())) == names
