"""What is checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import opera
from opera.config import automatic
from opera.config.recipe import make_recipe
from opera.core.errors import DataError, InputError, RunFolderError, SettingError
from opera.runs.folder import Run
from opera.training_set.prepare_data import prepare_data
from small_runs import SMALL, InterruptedAt

BAD: list[tuple[dict[str, Any], type[InputError], str]] = [
    ({"max_steps": 0}, SettingError, "max_steps: must be greater than or equal to 1, got 0"),
    ({"method": "spp"}, SettingError, "did you mean 'sp'"),
    ({"method": "sp", "k": 0.0001}, SettingError, "all are pruned"),
    ({"negatives": "hard", "range": (500, 600)}, SettingError, "starts past the end of the corpus"),
    ({"negatives": "given"}, SettingError, "holds no negatives"),
    ({"method": "dp", "alpha_start": 1.0}, SettingError, "which must lie between 0 and 1"),
    ({"max_query_length": 5}, SettingError, "reads whole texts"),
    ({"eval_steps": 5, "metric_for_best_model": "NDGC"}, SettingError, "unknown measure 'NDGC'"),
    ({"optim": "adamw_torhc"}, SettingError, "transformers refuses the settings: adamw_torhc is not a valid"),
    ({"lr_scheduler_type": "liner"}, SettingError, "liner"),
    ({"noise": "random"}, SettingError, "noise=random needs noise_share"),
    ({"noise_share": 0.5}, SettingError, "noise_share=0.5 needs noise=random or hard, but noise is none"),
    ({"noise": "grade", "noise_grade": 1}, SettingError, "noise_grade=1 must be below relevant_grade=1"),
    ({"noise": "grade", "noise_grade": 0}, SettingError, "has no train judgement with a score from 0 to 0"),
    ({"relevant_grade": 3}, DataError, "nothing to train on"),
    ({"method": "sp+dp", "k": 0.0001}, SettingError, "all are pruned"),
    ({"noise": "random", "noise_share": 0.99}, SettingError, "noise_share: must be less than or equal to 0.95"),
    ({"method": "sp+cbs", "score": "similarity"}, SettingError, "score: must be 'cbs', got 'similarity'"),
    ({"method": "infobatch", "rho": 1.0}, SettingError, "rho: must be less than 1, got 1"),
    ({"precision": "fp16"}, SettingError, "needs CUDA"),
    ({"dropout": 0.1}, SettingError, "has no dropout"),
    ({"seed": 2**32}, SettingError, "seed: must be less than 4294967296"),
    ({"out": "/dev/null/run"}, RunFolderError, "is not a folder that can be written to"),
    ({"model": "./absent"}, InputError, "no such model folder"),
    ({"data": "absent"}, DataError, "no such file or folder"),
    ({"resume": True}, RunFolderError, "holds no run to resume"),
    ({"resume": True, "overwrite": True}, RunFolderError, "pass one of the two"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), BAD, ids=[message for _, _, message in BAD])
def test_bad_input_is_refused_before_anything_is_written(
    changes: dict[str, Any], kind: type[InputError], message: str, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    arguments = {"data": beir, "model": static_model, "out": tmp_path / "run", **changes}
    with pytest.raises(kind) as caught:
        opera.adapt(**arguments)
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_automatic_settings_are_recorded_as_given_and_resolved(beir: Path, static_model: Path, tmp_path: Path) -> None:
    settings = {"method": "ft", "epochs": 2.5, "per_device_train_batch_size": 15, "guard": False}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **settings)
    given, resolved = run.record.identity, run.settings
    assert [given[name] for name in ("max_steps", "epochs", "temperature", "learning_rate")] == [None, 2.5, None, None]
    assert (resolved["max_steps"], resolved["epochs"]) == (8, 2.5), "40 queries are three batches of 15"
    assert resolved["temperature"] == 0.07
    assert resolved["learning_rate"] == 1e-2
    assert run.training.steps == len(run.trace()) == 8


def test_a_resumed_run_keeps_the_numbers_of_its_start(
    beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "max_steps": None, "epochs": None, "guard": False}
    with interrupted_at(5):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    begun = Run.open(tmp_path / "cut").settings
    other = replace(automatic.DEFAULTS["static"], epochs=1, least_steps=1)
    monkeypatch.setitem(automatic.DEFAULTS, "static", other)  # as on another device
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.settings["max_steps"] == resumed.training.steps == begun["max_steps"]


def test_dev_splits_without_a_relevant_document_are_refused_first(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path
) -> None:
    folder = make_beir(dev=True)
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\ndev0\td0\t0\n")
    with pytest.raises(DataError, match="split 'dev' has no judgement above 0"):
        opera.adapt(folder, model=static_model, out=tmp_path / "run", eval_steps=2, **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_missing_dev_split_is_drawn_and_said(beir: Path, static_model: Path, tmp_path: Path) -> None:
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL, eval_steps=4)
    assert "drew 10 of the 40 train queries as dev (like-test, seed 0)" in run.record.data.notes[0]
    assert run.record.method["queries"] == 30
    without = opera.adapt(beir, model=static_model, out=tmp_path / "without", **SMALL, guard=False)
    assert without.record.method["queries"] == 40


def test_test_queries_that_train_too_are_noted() -> None:
    corpus = {f"d{at}": f"text {at}" for at in range(9)}
    queries = {f"q{at}": f"ask {at}" for at in range(9)}
    train = {f"q{at}": {f"d{at}": 1} for at in range(8)}
    again = {**queries, "t1": "ask 1", "t2": "ask 2", "t3": "ask 3", "t4": "other"}
    tests = [
        ({"q0": {"d0": 1}, "q1": {"d1": 2}}, "2 of test's 2"),
        (
            {"t1": {"d1": 1}, "t2": {"d8": 1}, "t3": {"d3": 0, "d2": 1}, "t4": {"d4": 1}, "q7": {"d7": 1}},
            "2 of test's 5",
        ),
        ({"t1": {"d2": 1}, "q8": {"d8": 1}, "q3": {"d3": 0, "d1": 1}}, None),
    ]
    recipe = make_recipe({"guard": False})
    for test, counted in tests:
        data = opera.RetrievalData.from_dicts("m", corpus=corpus, queries=again, qrels={"train": train, "test": test})
        notes = [note for note in prepare_data(data, recipe).drawn.notes if "train too" in note]
        note = f"{counted} queries train too, with the same document: its scores may be optimistic"
        assert notes == ([] if counted is None else [note])
    drawn = opera.RetrievalData.from_dicts("m", corpus=corpus, queries=queries, qrels={"train": train})
    assert not any("train too" in note for note in prepare_data(drawn, recipe).drawn.notes)
