"""Weights of pairs: as loss weight, as the start of pair scores, and as a threshold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from opera.config.recipe import make_recipe
from opera.core.errors import SettingError
from opera.data import RetrievalData, load_data
from opera.training_set.build import build_training_set, loss_weights, scores_by_weight
from opera.training_set.prepare import load_and_check
from small_runs import SMALL

SETTINGS: dict[str, Any] = {**SMALL, "guard": False, "method": "sp"}


def weighted(beir: Path, *, distinct: bool = True) -> RetrievalData:
    """The small world with weights: all different, or each grade as the weight."""
    data = load_data(beir)
    train = data.split("train")
    weights = np.random.default_rng(1).permutation(len(train.doc_rows)) if distinct else train.grades
    return replace(data, splits={**data.splits, "train": replace(train, weights=weights.astype(np.float32))})


def prepared(data: RetrievalData, model: Path, **settings: Any) -> Any:
    return load_and_check(data, str(model), make_recipe({**SETTINGS, **settings}))


def test_loss_weights_have_mean_1_and_reach_the_loss(beir: Path, static_model: Path, tmp_path: Path) -> None:
    assert loss_weights(np.array([1.0, 3.0])).tolist() == [0.5, 1.5]  # type: ignore[union-attr]
    data = weighted(beir)
    run = opera.adapt(data, model=static_model, out=tmp_path / "run", **{**SETTINGS, "pair_weights": "loss"})
    plain = opera.adapt(data, model=static_model, out=tmp_path / "plain", **SETTINGS)
    assert run.pairs()["times_drawn"] == plain.pairs()["times_drawn"], "weights change no draw"
    assert run.trace()["loss"] != plain.trace()["loss"] or run.measures != plain.measures
    assert sorted(run.pairs()["weight"].to_pylist()) == list(range(run.pairs().num_rows))
    assert run.settings["pair_weights"] == "loss"


def test_scores_by_weight_keep_the_values_and_follow_the_weights() -> None:
    similarity = np.array([0.9, 0.1, 0.5, 0.7], dtype=np.float32)
    assert scores_by_weight(np.array([1.0, 5, 3, 3]), similarity) == pytest.approx([0.1, 0.9, 0.5, 0.7])


def test_sp_keeps_the_heaviest_pairs(beir: Path, static_model: Path) -> None:
    run = prepared(weighted(beir), static_model, pair_weights="scores")
    built = build_training_set(run)
    kept = run.recipe.make_method(built.pairs, built.scores, 1).kept
    assert built.pair_weights is not None
    assert built.pair_weights[kept].min() > built.pair_weights[~kept].max()
    assert built.start_scores is not None
    assert built.start_scores.argmax() == built.pair_weights.argmax()


@pytest.mark.parametrize("method", ["sp", "dp", "sp+dp"])
def test_equal_weights_stay_in_the_order_of_their_similarity(method: str, beir: Path, static_model: Path) -> None:
    data = weighted(beir, distinct=False)
    plain = build_training_set(prepared(data, static_model, method=method))
    built = build_training_set(prepared(data, static_model, method=method, pair_weights="scores"))
    assert built.scores is not None
    assert plain.scores is not None
    assert np.array_equal(np.sort(built.scores.similarity), np.sort(plain.scores.similarity))
    assert np.array_equal(built.scores.loss, plain.scores.loss)
    assert np.array_equal(built.similarity, plain.similarity), "what pairs.parquet has is the cosine"
    assert np.array_equal(built.start_scores, built.scores.similarity)
    assert plain.start_scores is None
    for weight in (1, 2):
        same = built.pair_weights == weight
        order = np.argsort(plain.scores.similarity[same], kind="stable")
        assert (np.diff(built.scores.similarity[same][order]) >= 0).all()


def test_weights_that_are_not_used_are_noted(beir: Path, static_model: Path) -> None:
    notes = prepared(weighted(beir, distinct=False), static_model).data.drawn.notes
    assert "training pairs have weights from 1 to 2, not used: pair_weights=loss or scores uses them" in notes
    assert not any("weights" in note for note in prepared(load_data(beir), static_model).data.drawn.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pair_weights": "scores", "method": "ft"}, "pair_weights=scores: method ft uses no pair scores"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(
    settings: dict[str, Any], message: str, beir: Path, static_model: Path
) -> None:
    with pytest.raises(SettingError, match=message):
        prepared(weighted(beir, distinct=False), static_model, **settings)


@pytest.mark.parametrize("setting", [{"pair_weights": "loss"}, {"pair_weights": "scores"}])
def test_data_without_weights_are_refused(setting: dict[str, Any], beir: Path, static_model: Path) -> None:
    with pytest.raises(SettingError, match=r"the pairs of .* have no weights; leave the setting out"):
        prepared(load_data(beir), static_model, **setting)


def test_weights_of_0_alone_cannot_weigh_a_loss(beir: Path, static_model: Path) -> None:
    data = weighted(beir)
    train = data.split("train")
    zero = replace(data, splits={**data.splits, "train": replace(train, weights=train.weights_or_ones() * 0)})
    with pytest.raises(SettingError, match=r"every training pair of .* has weight 0"):
        prepared(zero, static_model, pair_weights="loss")
