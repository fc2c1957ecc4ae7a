"""False positives: how many, which, and what they change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import opera
from distinct import pool_of
from opera.config.training import TrainSettings
from opera.core.rng import generator
from opera.data import Qrels
from opera.retrieval.measures import FULL_MEASURES
from opera.training_set.documents import Lists
from opera.training_set.noise import (
    add_false_positives,
    false_positive_count,
    inject_noise,
    listed_candidates,
    random_candidates,
)
from small_runs import SMALL


@pytest.fixture
def clean() -> Qrels:
    query = np.repeat([3, 5, 9], [4, 1, 7])
    return Qrels.from_arrays(query, np.concatenate([np.arange(4), [7], np.arange(7)]), np.ones(12, dtype=int))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_random_false_positives_make_up_the_share(clean: Qrels, share: float) -> None:
    noisy, injected = add_false_positives(clean, share, 0, *random_candidates(clean, pool_of(500)))
    assert injected.sum() == false_positive_count(12, share)
    assert injected.mean() == pytest.approx(share, abs=1 / 12)
    assert len(np.unique(noisy.keys)) == len(noisy.keys)
    assert noisy.select_judgements(~injected).keys.tolist() == clean.keys.tolist()
    again, _ = add_false_positives(clean, share, 0, *random_candidates(clean, pool_of(500)))
    assert np.array_equal(noisy.doc_rows, again.doc_rows)


def test_drawn_ones_have_the_mean_weight(clean: Qrels) -> None:
    weighted = replace(clean, weights=np.arange(12, dtype=np.float32))
    noisy, injected = add_false_positives(weighted, 0.5, 0, *random_candidates(weighted, pool_of(50)))
    assert noisy.weights is not None
    assert noisy.weights[injected].tolist() == [5.5] * 12


def test_candidates_run_out_or_go_to_other_queries(clean: Qrels) -> None:
    available, draw = random_candidates(clean, pool_of(9))
    for query, own in ((0, {0, 1, 2, 3}), (1, {7}), (2, set(range(7)))):
        drawn = draw(query, generator(0, "test"), int(available[query]))
        assert set(drawn.tolist()) == set(range(9)) - own, "every other document"
    few = Lists.of([np.array([20, 21]), np.array([22]), np.array([23, 24, 25])])
    noisy, injected = add_false_positives(clean, 0.9, 0, *listed_candidates(few))
    assert sorted(noisy.doc_rows[injected]) == [20, 21, 22, 23, 24, 25]
    uneven = Lists.of([np.array([20]), np.array([], dtype=int), np.arange(30, 60)])
    _, injected = add_false_positives(clean, 0.5, 0, *listed_candidates(uneven))
    assert (injected.sum(), injected.mean()) == (12, 0.5)


def test_random_noise_is_not_a_held_out_positive(beir: Path) -> None:
    data = opera.load_data(beir)
    clean = data.training_split()
    query, documents = clean.query_rows[:1].repeat(len(data.corpus)), np.arange(len(data.corpus))
    every = Qrels.from_arrays(query, documents, np.ones(len(documents), dtype=int))
    left = every.select_judgements(~clean.contains(every))
    settings = TrainSettings.parse({"noise": "random", "noise_share": 0.5})
    noisy, injected = inject_noise(data, replace(data, held_out=left), settings, None)  # type: ignore[arg-type]
    assert injected.sum() == len(clean.doc_rows)
    assert not (left.contains(noisy) & injected).any()


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
