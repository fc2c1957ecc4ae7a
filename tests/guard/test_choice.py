"""Runs under the guard: the final model for each λ, the files, and runs that are cut off."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file

import opera
from opera.config.recipe import make_recipe
from opera.data import load_all
from opera.data.splits import draw_missing_splits
from opera.guard import choice, dev_corpus
from opera.run import steps
from small_runs import assert_same_run, prepare

REFIT = {
    "method": "ft",
    "max_steps": 12,
    "per_device_train_batch_size": 8,
    "learning_rate": 0.05,
    "temperature": 0.1,
    "save_steps": 5,
}


@pytest.fixture
def with_weight(monkeypatch) -> Callable[[float], None]:
    """``with_weight(0.5)``: the rule chooses this λ."""
    return lambda weight: monkeypatch.setattr(choice, "choose_weight", lambda *seen: weight)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory, beir, static_model) -> opera.Run:
    out = tmp_path_factory.mktemp("unguarded") / "run"
    return opera.adapt(beir, model=static_model, out=out, guard=False, **REFIT)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, beir, static_model) -> opera.Run:
    out = tmp_path_factory.mktemp("guarded") / "run"
    return opera.adapt(beir, model=static_model, out=out, metric_for_best_model="P@7", **REFIT)


def table(folder: Path) -> np.ndarray:
    (values,) = load_file(next(folder.rglob("model.safetensors"))).values()
    return values


def test_at_share_1_the_second_training_is_that_without_the_guard(train, unguarded, with_weight):
    with_weight(1.0)
    run = train(**REFIT)
    assert_same_run(run, unguarded, but=("first_rank", "first_step"))  # they are the first training's
    assert (run.path / "draws.parquet").read_bytes() == (unguarded.path / "draws.parquet").read_bytes()
    assert {model: run.measures[model] for model in unguarded.measures} == unguarded.measures
    assert run.measures.keys() - unguarded.measures.keys() == {"hybrid"}  # only the guard chooses its weight
    guard = run.record.guard
    assert (guard.mixing_weight, guard.refit, guard.expected_documents, guard.dev_queries) == (
        1.0,
        True,
        "like-test",
        10,
    )
    assert run.record.method["queries"] == 40
    assert opera.Run(run.path / "trial").trace().num_rows == 12


def test_between_the_ends_the_weights_are_interpolated(train, unguarded, beir, static_model, with_weight):
    with_weight(0.25)
    run = train(**REFIT)
    expected = np.float32(0.75) * table(static_model) + np.float32(0.25) * table(unguarded.path / "model")
    np.testing.assert_array_equal(table(run.path / "model"), expected)
    assert run.measures["base"] == unguarded.measures["base"]
    assert run.measures["fine_tuned"] == unguarded.measures["final"]
    assert run.measures["final"] == opera.evaluate(beir, model=run.path, measures=list(run.measures["final"])).measures


def test_at_share_0_the_untrained_model_is_handed_over(train, static_model, with_weight):
    with_weight(0.0)
    run = train(**REFIT)
    assert table(run.model_path).tobytes() == table(static_model).tobytes()
    assert run.measures["final"] == run.measures["base"] != run.measures["fine_tuned"]
    guard = run.record.guard
    assert (guard.dev_verdict, guard.refit) == ("kept", False)
    assert run.record.method["queries"] == 30  # of the only training
    assert run.trace().equals(opera.Run(run.path / "trial").trace())


def test_a_run_lists_the_dev_queries_that_it_drew(guarded, unguarded, beir):
    listed = pq.read_table(guarded.path / "dev_queries.parquet").to_pydict()
    data = draw_missing_splits(load_all([beir]), seed=0, needs_dev=True).joined
    dev = data.split("dev").relevant()
    documents = np.split(data.corpus.ids(dev.doc_rows), dev.offsets[1:-1])
    assert listed["query_id"] == data.queries.ids(dev.query_rows)
    assert listed["relevant"] == [ids.tolist() for ids in documents]
    assert list(map(len, listed["grades"])) == np.diff(dev.offsets).tolist()
    assert not (unguarded.path / "dev_queries.parquet").exists()


def test_the_record_has_the_curve_and_the_intervals_of_the_choice(guarded):
    guard = guarded.record.guard
    assert (guard.measure, guard.dev_documents) == ("P@7", None)
    assert [point.mixing_weight for point in guard.curve] == [n / 8 for n in range(9)]
    means = {point.mixing_weight: point.mean for point in guard.curve}
    assert (guard.dev.base, guard.dev.fine_tuned) == (means[0], means[1])
    # the difference is that of each half of dev at the λ of the other half
    assert guard.dev.final == pytest.approx(guard.dev.base + guard.dev.difference)
    assert guard.test is not None
    for when in ("base", "fine_tuned", "final"):
        assert getattr(guard.test, when) == pytest.approx(guarded.measures[when]["P@7"])
    for measured in (guard.dev, guard.test):
        assert measured.low <= measured.difference <= measured.high
    assert 0 <= guard.dev_seen <= 1


def test_a_dev_split_of_the_data_is_used_and_trained_around(make_beir, bert_model, tmp_path, monkeypatch):
    monkeypatch.setattr(dev_corpus, "GUARD_DOCUMENTS", 100)
    run = opera.adapt(make_beir(dev=True), model=bert_model, out=tmp_path / "run", **{**REFIT, "max_steps": 3})
    guard = run.record.guard
    assert (guard.dev_given, guard.dev_queries, guard.dev_documents, guard.refit) == (True, 16, 100, False)
    assert not (run.path / "trial").exists()
    assert run.record.method["queries"] == 40


def test_a_second_training_that_cannot_happen_is_refused(beir, static_model):
    with pytest.raises(opera.SettingError, match="refit=true needs guard=true"):
        make_recipe({"refit": True, "guard": False})
    with_dev = draw_missing_splits(load_all([beir]), seed=0, needs_dev=True)
    with pytest.raises(opera.SettingError, match="has a dev split"):
        prepare(with_dev, static_model, refit=True)


@pytest.mark.parametrize(
    ("model", "settings", "refits"),
    [
        ("static", {"max_steps": 1000}, True),
        ("static", {"max_steps": 10, "eval_steps": 5}, False),
        ("static", {"max_steps": 10, "refit": False}, False),
        ("bert", {"max_steps": 200}, True),
        ("bert", {"max_steps": 201}, False),
        ("bert", {"max_steps": 201, "adapter": "query"}, True),
    ],
)
def test_where_a_second_training_follows(model, settings, refits, beir, static_model, bert_model):
    folder = {"static": static_model, "bert": bert_model}[model]
    assert prepare(beir, folder, **settings).refits is refits


def test_a_choice_is_kept_when_the_second_training_is_cut_off(train, guarded, tmp_path, monkeypatch):
    """Neither the trial nor the choice is made again."""
    settings = {**REFIT, "metric_for_best_model": "P@7"}
    fit, fits = steps.fit, []

    def cut(*arguments: Any) -> Any:
        fits.append(fit(*arguments))
        if len(fits) == 2:
            raise KeyboardInterrupt
        return fits[-1]

    with monkeypatch.context() as patch:
        patch.setattr(steps, "fit", cut)
        with pytest.raises(KeyboardInterrupt):
            train("cut", **settings)
    chosen = opera.Run.open(tmp_path / "cut").record.guard
    assert chosen is not None

    def never(*arguments: Any) -> Any:
        raise AssertionError("chosen twice")

    monkeypatch.setattr(choice.Guard, "choose", never)
    resumed = train("cut", resume=True, **settings)
    assert resumed.record.guard == guarded.record.guard
    assert chosen == guarded.record.guard.model_copy(update={"test": None, "second": None})
    assert_same_run(resumed, guarded)
    assert resumed.measures == guarded.measures


@pytest.mark.parametrize("expected_documents", ["both", "like-test"])
def test_test_labels_change_nothing_but_the_figures_on_test(expected_documents, beir, static_model, tmp_path):
    """``expected_documents`` decides what a run reads of test: nothing, or which of its documents train has."""
    other = Path(shutil.copytree(beir, tmp_path / beir.name))
    labels = pd.read_csv(other / "qrels" / "test.tsv", sep="\t")
    if expected_documents == "both":
        labels["corpus-id"] = [f"d{row % 5}" for row in labels.index]
    else:  # the same documents, of other queries
        labels["query-id"] = [f"test{(int(query.removeprefix('test')) + 1) % 16}" for query in labels["query-id"]]
    labels.drop_duplicates(["query-id", "corpus-id"]).to_csv(other / "qrels" / "test.tsv", sep="\t", index=False)
    settings = {**REFIT, "expected_documents": expected_documents, "refit": expected_documents == "like-test"}
    one, two = (
        opera.adapt(data, model=static_model, out=tmp_path / f"run{number}", **settings)
        for number, data in enumerate((beir, other))
    )
    assert_same_run(one, two)
    chosen = one.record.guard.model_dump(exclude={"test"})
    assert chosen == two.record.guard.model_dump(exclude={"test"})
    assert (chosen["test_seen"] is None) is (expected_documents != "like-test")
    assert one.measures["base"] != two.measures["base"]


def test_a_second_training_that_fails_is_not_handed_over(train, with_weight, monkeypatch):
    with_weight(1.0)
    settings = {**REFIT, "max_steps": 20, "learning_rate": 0.1}
    first = train("first", **settings, refit=False)
    fit = steps.fit

    def spoilt(session: Any, data: Any, run: Any, phase: str, *more: Any) -> Any:
        done = fit(session, data, run, phase, *more)
        if phase == "train":
            with torch.no_grad():
                next(session.prepared.model.trained.parameters()).fill_(1)
        return done

    monkeypatch.setattr(steps, "fit", spoilt)
    run = train(**settings)
    guard = run.record.guard
    assert (guard.second.kept, guard.refit) == (False, False)
    assert guard.second.second < guard.second.trial - guard.second.error
    assert run.record.method == first.record.method
    assert not (run.path / "checkpoints").exists()
    assert_same_run(run, first)
    assert run.measures == first.measures
