"""Runs under the guard: what is handed over at each share, what is written, and runs that are cut off."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import opera
from killable import Killable, changes
from opera.config.recipe import make_recipe
from opera.core.errors import SettingError
from opera.runs.folder import Run
from opera.training import train
from opera.training.guard import choice
from opera.training_set.prepare import load_and_check
from small_runs import assert_same_run

REFIT: dict[str, Any] = {
    "method": "ft",
    "max_steps": 12,
    "per_device_train_batch_size": 8,
    "learning_rate": 0.05,
    "temperature": 0.1,
    "save_steps": 5,
}


@pytest.fixture
def with_share(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``with_share(0.5)``: the rule chooses this share whatever it sees."""
    return lambda share: monkeypatch.setattr(choice, "choose_share", lambda *seen: share)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    out = tmp_path_factory.mktemp("unguarded") / "run"
    return opera.adapt(beir, model=static_model, out=out, guard=False, **REFIT)


def table(folder: Path) -> np.ndarray:
    (values,) = load_file(next(folder.rglob("model.safetensors"))).values()
    return values


def test_without_the_guard_nothing_is_held_out(unguarded: Run) -> None:
    assert unguarded.record.guard is None
    assert set(unguarded.record.data.counts) == {
        "documents", "train_queries", "train_pairs", "test_queries", "test_pairs",
    }  # fmt: skip
    assert unguarded.record.method["queries"] == 40
    assert unguarded.measures["fine_tuned"] == unguarded.measures["after"]
    per_query = unguarded.per_query()
    assert per_query["fine_tuned nDCG@10"].equals(per_query["after nDCG@10"])
    assert not (unguarded.path / "trial").exists()


def test_at_share_1_the_second_training_is_that_without_the_guard(
    unguarded: Run, beir: Path, static_model: Path, tmp_path: Path, with_share: Callable[[float], None]
) -> None:
    with_share(1.0)
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **REFIT)
    assert_same_run(run, unguarded)
    assert (run.path / "sampling.npz").read_bytes() == (unguarded.path / "sampling.npz").read_bytes()
    assert run.measures == unguarded.measures
    guard = run.record.guard
    assert guard is not None
    assert (guard.share, guard.refit, guard.future, guard.dev_queries) == (1.0, True, "like-test", 10)
    assert run.record.method["queries"] == 40
    assert not list((run.path / "trial").rglob("checkpoint-*"))
    assert Run(run.path / "trial").trace().num_rows == 12


def test_between_the_ends_the_weights_are_interpolated(
    unguarded: Run, beir: Path, static_model: Path, tmp_path: Path, with_share: Callable[[float], None]
) -> None:
    with_share(0.25)
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **REFIT)
    expected = np.float32(0.75) * table(static_model) + np.float32(0.25) * table(unguarded.path / "model")
    np.testing.assert_array_equal(table(run.path / "model"), expected)
    assert run.measures["before"] == unguarded.measures["before"]
    assert run.measures["fine_tuned"] == unguarded.measures["after"]
    assert run.measures["after"] == opera.evaluate(beir, model=run.path, measures=list(run.measures["after"])).measures
    assert "25% fine-tuned and 75% untrained" in (run.model_path / "README.md").read_text()


def test_at_share_0_the_untrained_model_is_handed_over(
    beir: Path, static_model: Path, tmp_path: Path, with_share: Callable[[float], None]
) -> None:
    with_share(0.0)
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **REFIT)
    assert table(run.model_path).tobytes() == table(static_model).tobytes()
    assert run.measures["after"] == run.measures["before"] != run.measures["fine_tuned"]
    guard = run.record.guard
    assert guard is not None
    assert (guard.verdict, guard.refit) == ("kept", False)
    assert guard.test is not None
    assert (guard.test.difference, guard.test.low, guard.test.high) == (0, 0, 0)
    assert run.record.method["queries"] == 30  # of the only training
    assert run.trace().equals(Run(run.path / "trial").trace())
    assert run.sampling() is not None


def test_the_record_says_why(beir: Path, static_model: Path, tmp_path: Path) -> None:
    settings = {**REFIT, "metric_for_best_model": "P@7"}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **settings)
    guard = run.record.guard
    assert guard is not None
    assert guard.measure == "P@7"
    assert [point.share for point in guard.curve] == [n / 8 for n in range(9)]
    means = {point.share: point.mean for point in guard.curve}
    assert guard.dev.before == means[0]
    assert guard.dev.fine_tuned == means[1]
    assert guard.dev.after == pytest.approx(guard.dev.before + guard.dev.difference)  # each half at the other's share
    assert guard.test is not None
    for when in ("before", "fine_tuned", "after"):
        assert getattr(guard.test, when) == pytest.approx(run.measures[when]["P@7"])
    for measured in (guard.dev, guard.test):
        assert measured.low <= measured.difference <= measured.high
    assert 0 <= guard.dev_seen <= 1


def test_a_dev_split_of_the_data_is_used_and_trained_around(
    make_beir: Callable[..., Path], bert_model: Path, tmp_path: Path
) -> None:
    run = opera.adapt(make_beir(dev=True), model=bert_model, out=tmp_path / "run", **REFIT)
    guard = run.record.guard
    assert guard is not None
    assert (guard.dev_given, guard.dev_queries, guard.refit) == (True, 16, False)
    assert not (run.path / "trial").exists()
    assert run.record.method["queries"] == 40


@pytest.mark.parametrize(
    ("model", "settings", "refits"),
    [
        ("static", {"max_steps": 1000}, True),
        ("static", {"max_steps": 10, "eval_steps": 5}, False),
        ("static", {"max_steps": 10, "refit": False}, False),
        ("static", {"max_steps": 10, "guard": False, "refit": True}, False),
        ("bert", {"max_steps": 200}, True),
        ("bert", {"max_steps": 201}, False),
        ("bert", {"max_steps": 201, "refit": True}, True),
        ("bert", {"max_steps": 201, "adapter": "query"}, True),
    ],
)
def test_where_a_second_training_follows(
    model: str, settings: dict[str, Any], refits: bool, beir: Path, static_model: Path, bert_model: Path
) -> None:
    folder = {"static": static_model, "bert": bert_model}[model]
    assert load_and_check(opera.load_data(beir), str(folder), make_recipe(settings)).refits is refits


def test_a_second_training_has_no_dev_split_to_evaluate(beir: Path, static_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="refit=true with eval_steps=4"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", refit=True, eval_steps=4, **REFIT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("left", [1, 2])
def test_a_choice_is_kept_when_the_second_training_is_cut_off(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Cut off before the second training, or after it; neither the trial nor the choice is made again."""
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **REFIT)
    fit, fits = choice.fit, []

    def cut(*arguments: Any) -> Any:
        fits.append(arguments)
        if len(fits) == 2 and left == 1:
            raise KeyboardInterrupt
        done = fit(*arguments)
        if len(fits) == 2:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patch:
        for module in (train, choice):
            patch.setattr(module, "fit", cut)
        with pytest.raises(KeyboardInterrupt):
            opera.adapt(beir, model=static_model, out=tmp_path / "cut", **REFIT)
    chosen = Run.open(tmp_path / "cut").record.guard
    assert chosen is not None

    def never(*arguments: Any) -> Any:
        raise AssertionError("chosen twice")

    monkeypatch.setattr(choice.Guard, "_choose", never)
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **REFIT)
    assert resumed.record.guard == whole.record.guard
    assert chosen == whole.record.guard.model_copy(update={"test": None, "second": None})
    assert_same_run(resumed, whole)
    assert resumed.measures == whole.measures


def test_a_guarded_run_killed_at_random_moments_ends_like_one_never_killed(
    beir: Path, static_model: Path, tmp_path: Path
) -> None:
    moments = random.Random(7)
    options = ("--steps", "9", "--set", "save_steps=3", "--set", "refit=true")
    whole = Killable(beir, static_model, tmp_path / "whole", options)
    assert whole.run().wait() == 0
    killed = Killable(beir, static_model, tmp_path / "killed", options)
    statuses = [killed.run(moments.randint(20, 90)).wait() for _ in range(5)]
    assert statuses.count(-signal.SIGKILL) >= 3
    assert killed.run().wait() == 0
    one, other = Run.open(killed.out), Run.open(whole.out)
    assert_same_run(one, other)
    assert one.record.guard == other.record.guard
    assert one.measures == other.measures
    assert one.per_query() == other.per_query()
    assert [path.name for path in one.path.rglob(".*")] == [".written.json"]  # the model's list of files


@pytest.mark.slow
def test_a_guarded_run_killed_at_any_moment_ends_like_one_never_killed(
    beir: Path, static_model: Path, tmp_path: Path
) -> None:
    """Every fifth change, in a run of two trainings with two checkpoints each."""
    options = ("--steps", "4", "--lr", "0.001", "--set", "save_steps=2", "--set", "refit=true")
    whole = Killable(beir, static_model, tmp_path / "whole", options)
    count = changes(whole.run().log)
    assert count > 100
    guard = Run.open(whole.out).record.guard
    assert guard is not None
    assert guard.refit
    for moment in range(1, count + 1, 5):
        killed = Killable(beir, static_model, tmp_path / str(moment), options)
        assert killed.run(moment).wait() == -signal.SIGKILL
        assert killed.run().wait() == 0
        one, other = Run.open(killed.out), Run.open(whole.out)
        assert_same_run(one, other)
        assert one.record.guard == other.record.guard
        assert one.measures == other.measures
