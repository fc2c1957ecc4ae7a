"""What is checked before anything is written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.config import automatic
from opera.config.recipe import make_recipe
from opera.data import GivenNegatives, Mixture, RetrievalData
from opera.training.build import loss_weights
from opera.training.prepare_data import prepare_data
from small_runs import SMALL, interrupted_at
from tiny_world import data_from_dicts, judged


def test_automatic_settings_are_recorded_as_given_and_resolved(train):
    settings = {"method": "ft", "epochs": 2.5, "per_device_train_batch_size": 15, "guard": False}
    run = train(**settings)
    given, resolved = run.record.identity, run.settings
    assert [given[name] for name in ("max_steps", "epochs", "temperature", "learning_rate")] == [None, 2.5, None, None]
    assert (resolved["max_steps"], resolved["epochs"]) == (8, 2.5), "40 queries are three batches of 15"
    assert resolved["temperature"] == 0.07
    assert resolved["learning_rate"] == 1e-2
    assert run.training.steps == len(run.trace()) == 8


def test_a_resumed_run_keeps_the_numbers_of_its_start(train, tmp_path, monkeypatch):
    def least_steps(steps: int) -> None:
        other = replace(automatic.DEFAULTS["static"], epochs=1, least_steps=steps)
        monkeypatch.setitem(automatic.DEFAULTS, "static", other)

    settings = {**SMALL, "max_steps": None, "epochs": None, "guard": False}
    least_steps(12)
    with interrupted_at(5):
        train("cut", **settings)
    begun = opera.Run.open(tmp_path / "cut").settings
    least_steps(7)  # as on another device
    resumed = train("cut", resume=True, **settings)
    assert resumed.settings["max_steps"] == resumed.training.steps == begun["max_steps"]


def test_test_queries_that_train_too_are_noted():
    corpus = {f"d{at}": f"text {at}" for at in range(9)}
    queries = {f"q{at}": f"ask {at}" for at in range(9)}
    train = {f"q{at}": {f"d{at}": 1, "d8": 1} if at == 0 else {f"d{at}": 1} for at in range(8)}
    again = {**queries, "t1": "ask 1", "t2": "ask 2", "t3": "ask 3"}
    tests = [
        ({"q0": {"d0": 1, "d8": 1}, "q1": {"d1": 2}}, ["2 of the 2"]),
        ({"t1": {"d1": 1}, "t2": {"d8": 1}, "t3": {"d3": 0, "d2": 1}, "q7": {"d7": 1}}, ["2 of the 4"]),
        ({"t1": {"d2": 1}, "q8": {"d8": 1}, "q3": {"d3": 0, "d1": 1}}, []),
    ]
    for test, counted in tests:
        data = data_from_dicts("m", corpus=corpus, queries=again, qrels={"train": train, "test": test})
        notes = prepare_data(Mixture.of(data), make_recipe({"guard": False})).with_splits.joined.notes
        assert [note[15:25] for note in notes if "test queries" in note] == counted


def test_a_popular_document_that_left_train_stays_out_of_the_second_training(tmp_path):
    """A quarter of the queries have ``hub``, in two spellings, and all others ``common``, which stays in train."""
    first, others = range(10), range(10, 40)
    train = {f"q{n}": {f"hub{n % 2}": 1} for n in first} | {f"q{n}": {f"d{n}": 1, "common": 1} for n in others}
    documents = {f"hub{n}": "hub" + n * " " for n in range(2)} | {f"d{n}": f"text {n}" for n in [*others, 99]}
    data = data_from_dicts(
        "popular",
        corpus={**documents, "common": "common"},
        queries={f"q{n}": f"query {n}" for n in [*first, *others, 99]},
        qrels={"train": train, "test": {"q99": {"d99": 1}}},
    )
    (tmp_path / "d.csv").write_text("query_id,doc_id,decision\nq39,d39,wrong\nq39,common,wrong\n")
    settings = {"expected_documents": "new", "decisions": [str(tmp_path / "d.csv")]}
    prepared = prepare_data(Mixture.of(data), make_recipe(settings))
    assert prepared.with_splits.joined.split("dev").query_rows.tolist() == [*first], "the one small piece"
    again = prepared.with_dev_restored.joined
    assert judged(again, "train") == [(f"q{n}", name, 1) for n in range(10, 39) for name in (f"d{n}", "common")]
    assert again.held_out.query_rows.tolist() == [*first]
    assert prepared.lost_to_dev == pytest.approx(10 / 39), "of the queries, more than 10 of the 68 pairs"
    assert prepared.all_queries == 40, "before dev and decisions"


def test_several_sets_expect_what_each_of_them_does():
    """A set with a test split expects documents like those of test, others what their train pairs say."""

    def one(name: str, documents: int, *splits: str) -> RetrievalData:
        train = {f"{name}{n}": {f"d{n % documents}": 1} for n in range(24)}
        qrels = {"train": train} | {split: {f"{name}{split}": {"d0": 1}} for split in splits}
        queries = {query: query for split in qrels.values() for query in split}
        corpus = {f"d{n}": f"{name} {n}" for n in range(documents)}
        return data_from_dicts(name, corpus=corpus, queries=queries, qrels=qrels)

    known, new, test, dev = one("k", 4), one("n", 24), one("t", 24, "test"), one("d", 24, "test", "dev")
    for sets, expected, drawn in (
        ((known, new), "both", True),
        ((known, test), "like-test", True),
        ((test, dev), "like-test", True),
        ((dev, one("e", 24, "test", "dev")), "like-test", False),
    ):
        prepared = prepare_data(Mixture.of(*sets), make_recipe({}))
        assert (prepared.expected_documents, prepared.dev_drawn) == (expected, drawn)


def test_negatives_that_came_with_the_data_are_used_unless_a_setting_says_otherwise(beir):
    data = opera.load_data(beir)
    data = replace(data, given_negatives=GivenNegatives.of([np.array([0])] * len(data.queries)))
    for settings, kind in (({}, "given"), ({"negatives": "random"}, "random"), ({"train_group_size": 1}, "none")):
        assert prepare_data(Mixture.of(data), make_recipe({"guard": False, **settings})).negatives == kind


SP = {**SMALL, "guard": False, "method": "sp"}


def weighted(beir: Path) -> opera.RetrievalData:
    """The small world with different weights."""
    data = opera.load_data(beir)
    train = data.split("train")
    weights = np.random.default_rng(1).permutation(len(train.doc_rows)).astype(np.float32)
    return replace(data, splits={**data.splits, "train": replace(train, weights=weights)})


def test_loss_weights_have_mean_1_and_reach_the_loss(train, beir):
    assert loss_weights(np.array([1.0, 3.0])).tolist() == [0.5, 1.5]
    data = weighted(beir)
    run, plain = (train(use, data=data, pair_weights=use, **SP) for use in ("loss", "none"))
    assert run.pairs()["times_drawn"] == plain.pairs()["times_drawn"], "weights change no draw"
    assert run.trace()["loss"] != plain.trace()["loss"] or run.measures != plain.measures
    assert sorted(run.pairs()["weight"].to_pylist()) == list(range(run.pairs().num_rows))
