"""False positives: how many, which, and what they change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.core.rng import generator
from opera.data import Qrels
from opera.retrieval.measures import FULL_MEASURES
from opera.training_set.documents import DocumentPool
from opera.training_set.negatives import ListedNegatives
from opera.training_set.noise import (
    add_false_positives,
    add_lower_grades,
    false_positive_count,
    listed_candidates,
    random_candidates,
)
from small_runs import SMALL


@pytest.fixture
def clean() -> Qrels:
    query = np.repeat([3, 5, 9], [4, 1, 7])
    return Qrels.from_arrays(query, np.concatenate([np.arange(4), [7], np.arange(7)]), np.ones(12, dtype=int))


def test_false_positives_have_weights() -> None:
    weights = np.array([4.0, 8.0, 5.0, 0.0])
    judged = Qrels.from_arrays(np.array([3, 3, 3, 5]), np.array([0, 1, 2, 0]), np.array([2, 2, 1, 0]), weights)
    clean = judged.select_judgements(judged.grades >= 2)
    graded = add_lower_grades(clean, judged, relevant_grade=2, noise_grade=1)
    assert graded.qrels.weights is not None
    assert graded.qrels.weights.tolist() == [4, 8, 5], "its own"
    drawn = add_false_positives(clean, 0.5, 0, random_candidates(clean, DocumentPool(50)))
    assert drawn.qrels.weights is not None
    assert drawn.qrels.weights[drawn.injected].tolist() == [6, 6], "the mean"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_random_false_positives_make_up_the_share(clean: Qrels, share: float) -> None:
    noisy = add_false_positives(clean, share, 0, random_candidates(clean, DocumentPool(500)))
    assert noisy.count == false_positive_count(12, share)
    assert noisy.injected.mean() == pytest.approx(share, abs=1 / 12)
    keys = noisy.qrels.query_index.astype(int) * 500 + noisy.qrels.doc_rows
    assert len(np.unique(keys)) == len(keys)
    true = noisy.qrels.query_rows[noisy.qrels.query_index[~noisy.injected]]
    assert true.tolist() == clean.query_rows[clean.query_index].tolist()
    assert noisy.qrels.doc_rows[~noisy.injected].tolist() == clean.doc_rows.tolist()
    again = add_false_positives(clean, share, 0, random_candidates(clean, DocumentPool(500)))
    assert np.array_equal(noisy.qrels.doc_rows, again.qrels.doc_rows)


def test_random_candidates_are_every_other_document(clean: Qrels) -> None:
    candidates = random_candidates(clean, DocumentPool(9))
    for query, own in ((0, {0, 1, 2, 3}), (1, {7}), (2, set(range(7)))):
        count = int(candidates.available[query])
        assert set(candidates.draw(query, generator(0, "test"), count).tolist()) == set(range(9)) - own


def test_hard_ones_come_from_the_list_until_it_ends(clean: Qrels) -> None:
    mined = ListedNegatives.from_lists([np.array([20, 21]), np.array([22]), np.array([23, 24, 25])], DocumentPool(100))
    noisy = add_false_positives(clean, 0.9, 0, listed_candidates(mined))
    assert sorted(noisy.qrels.doc_rows[noisy.injected]) == [20, 21, 22, 23, 24, 25]
    assert noisy.count < false_positive_count(12, 0.9)


def test_what_one_query_cannot_take_goes_to_the_others(clean: Qrels) -> None:
    mined = ListedNegatives.from_lists([np.array([20]), np.array([], dtype=int), np.arange(30, 60)], DocumentPool(100))
    noisy = add_false_positives(clean, 0.5, 0, listed_candidates(mined))
    assert noisy.count == 12
    assert noisy.injected.mean() == 0.5


def test_graded_down_lets_in_the_levels_asked_for() -> None:
    judged = Qrels.from_arrays(np.array([0, 0, 0, 0, 1]), np.arange(5), np.array([1, 2, 3, 4, 2]))
    clean = judged.select_queries(np.array([True, False]))
    clean = Qrels.from_arrays(np.zeros(2, dtype=int), np.array([2, 3]), np.array([3, 4]))
    noisy = add_lower_grades(clean, judged, relevant_grade=3, noise_grade=2)
    assert noisy.qrels.grades.tolist() == [2, 3, 4, 2]
    assert noisy.injected.tolist() == [True, False, False, True]


@pytest.mark.parametrize("kind", ["random", "hard"])
def test_noise_is_injected_recorded_and_counted(kind: str, beir: Path, static_model: Path, tmp_path: Path) -> None:
    noise = {"noise": kind, "noise_share": 0.3}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", method="sp", k=0.5, guard=False, **SMALL, **noise)
    clean = opera.load_data(beir).training_split()
    noise, pairs = run.record.noise, run.pairs()
    assert noise is not None
    injected, kept = (pairs[name].to_numpy(zero_copy_only=False) for name in ("injected", "kept"))
    assert kept.sum() == run.record.method["kept_pairs"]
    assert pairs["times_drawn"].to_numpy()[~kept].sum() == 0
    assert injected.sum() == noise.injected_pairs == int(0.3 / 0.7 * len(clean.doc_rows))
    assert noise.share_of_pairs == pytest.approx(0.3, abs=0.01)
    drawn = pairs["times_drawn"].to_numpy()
    assert noise.share_of_draws == pytest.approx(drawn[injected].sum() / drawn.sum())
    assert run.record.method["pairs"] == len(injected)
    data = opera.load_data(beir)
    true = set(zip(data.queries.ids(clean.query_rows[clean.query_index]), data.corpus.ids(clean.doc_rows), strict=True))
    pairs_as_ids = list(zip(pairs["query_id"].to_pylist(), pairs["doc_id"].to_pylist(), strict=True))
    assert {pair for pair, false in zip(pairs_as_ids, injected, strict=True) if not false} == true
    assert not {pair for pair, false in zip(pairs_as_ids, injected, strict=True) if false} & true


def test_given_negatives_that_noise_made_positive_are_left_out(static_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    records = [
        {"query": f"t{i % 12}w5 common{i}", "pos": [f"t{i}w1"], "neg": [f"t{j}w1" for j in range(12) if j != i]}
        for i in range(12)
    ]
    path.write_text("\n".join(json.dumps(record) for record in records))
    run = opera.adapt(
        path, model=static_model, out=tmp_path / "run", **SMALL, guard=False, noise="random", noise_share=0.5
    )
    pairs = run.record.method["pairs"]
    assert run.record.noise.injected_pairs == pairs / 2
    assert run.record.negatives.listed == 11 * 11 - pairs / 2


def test_documents_judged_lower_can_be_let_in(beir: Path, static_model: Path, tmp_path: Path) -> None:
    """The paper's ANTIQUE setup: what counts as relevant starts at one grade, training lets in the one below."""
    strict = opera.adapt(beir, model=static_model, out=tmp_path / "strict", method="ft", relevant_grade=2, **SMALL)
    noisy = opera.adapt(
        beir,
        model=static_model,
        out=tmp_path / "noisy",
        method="ft",
        relevant_grade=2,
        noise="grade",
        noise_grade=1,
        **SMALL,
    )
    assert set(strict.pairs()["grade"].to_pylist()) == {2}
    pairs = noisy.pairs()
    assert pairs["injected"].to_pylist() == [grade == 1 for grade in pairs["grade"].to_pylist()]
    assert pairs.num_rows > strict.pairs().num_rows
    assert noisy.measures["before"] == strict.measures["before"]
    plain = opera.evaluate(beir, model=static_model, measures=FULL_MEASURES).measures
    assert noisy.measures["before"] != plain
    assert (
        opera.evaluate(beir, model=static_model, measures=FULL_MEASURES, relevant_grade=2).measures
        == noisy.measures["before"]
    )
    assert opera.evaluate(beir, model=noisy.path, measures=FULL_MEASURES).measures == noisy.measures["after"]
    assert "relevant_grade=2" in noisy.record.data.notes[0]
