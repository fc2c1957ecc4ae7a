"""adapt, from data to run folder, with real training in seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

import opera
from opera.core.errors import DataError, RunFolderError
from opera.methods import METHODS
from opera.methods.dynamic import cosine_schedule
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import load_model
from opera.runs.folder import Run
from small_runs import FAST, SMALL, weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("runs") / "dp", method="dp", **FAST)


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_learns(method: str, beir: Path, static_model: Path, tmp_path: Path) -> None:
    settings = {"k": 0.5} if "k" in METHODS[method].settings_class.model_fields else {}
    run = opera.adapt(beir, model=static_model, out=tmp_path / method, method=method, **FAST, **settings)
    assert run.finished
    before, after = run.measures["before"], run.measures["after"]
    assert after["nDCG@10"] > before["nDCG@10"] + 0.1
    assert set(FULL_MEASURES) == set(after) == set(before)


def test_the_run_folder_says_it_all(finished: Run, beir: Path) -> None:
    about = json.loads((finished.path / "run.json").read_text())
    assert about["status"] == "finished"
    assert about["settings"]["method"] == "dp"
    assert about["settings"]["mask_known_positives"] is True
    assert about["settings"]["learning_rate"] == 0.1
    assert about["settings"]["negatives"] == "random"
    assert about["seed"] == 0
    assert about["training"]["lag"] == 1
    assert {"load", "evaluate_before", "evaluate_dev", "choose_share", "train"} < set(about["seconds"])
    assert {"python", "torch", "sentence-transformers", "opera-retrieval"} <= set(about["versions"])
    assert about["data"]["fingerprint"] == opera.load_data(beir).fingerprint
    assert about["data"]["counts"]["documents"] == 120
    trace = finished.trace()
    assert trace.column_names == [
        "step", "loss", "learning_rate", "alpha", "r", "beta", "v",
        "query_threshold", "document_threshold", "seconds",
    ]  # fmt: skip
    assert trace["step"].to_pylist() == list(range(1, 61))
    assert trace["alpha"][0].as_py() == 2
    assert trace["v"][0].as_py() == 0.25
    assert trace["alpha"][59].as_py() == pytest.approx(cosine_schedule(2, 5, 59, 60))
    assert trace["learning_rate"].to_pylist() == pytest.approx([0.1 * (1 - step / 60) for step in range(60)])
    loss = trace["loss"].to_numpy()
    assert loss[-10:].mean() < loss[:10].mean()
    assert (trace["seconds"].to_numpy() > 0).all()
    assert not [p for p in finished.path.iterdir() if p.name.startswith(".")]


def test_per_query_values_average_to_the_measures(finished: Run) -> None:
    table = finished.per_query()
    for when in ("before", "after"):
        for name, mean in finished.measures[when].items():
            assert np.mean(table[f"{when} {name}"].to_numpy()) == pytest.approx(mean)
    assert table["query_id"].to_pylist()[0].startswith("test")
    assert all(len(found) == 10 for found in table["after documents"].to_pylist())


def test_the_model_loads_plainly_and_measures_the_same(finished: Run, beir: Path) -> None:
    model = SentenceTransformer(str(finished.model_path), device="cpu")
    assert model.encode(["t1w1 t1w2"]).shape == (1, 24)
    for place in (finished.model_path, finished.path):
        again = opera.evaluate(beir, model=place, measures=FULL_MEASURES)
        assert again.measures == pytest.approx(finished.measures["after"])
    assert "nDCG@10" in (finished.model_path / "README.md").read_text()


def test_same_command_same_bytes(finished: Run, beir: Path, static_model: Path, tmp_path: Path) -> None:
    again = opera.adapt(beir, model=static_model, out=tmp_path / "again", method="dp", **FAST)
    assert weights(again) == weights(finished)
    assert again.trace().drop_columns("seconds") == finished.trace().drop_columns("seconds")
    other = opera.adapt(beir, model=static_model, out=tmp_path / "other", method="dp", seed=1, **FAST)
    assert weights(other) != weights(finished)


def test_overwrite_replaces_the_run_and_spares_other_files(beir: Path, static_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = opera.adapt(beir, model=static_model, out=out, method="ft", **SMALL)
    (out / "my-notes.txt").write_text("keep me")
    second = opera.adapt(beir, model=static_model, out=out, method="sp", overwrite=True, **SMALL)
    assert second.settings["method"] == "sp"
    assert weights(first) == weights(second)  # the same folder
    assert (out / "my-notes.txt").read_text() == "keep me"
    assert second.record.method["kept_pairs"] == int(0.25 * second.record.method["pairs"])


def test_every_draw_is_recorded(finished: Run) -> None:
    pairs = finished.pairs()
    assert sum(pairs["times_drawn"].to_pylist()) == 60 * 16
    assert not any(pairs["injected"].to_pylist())
    assert pairs.num_rows == finished.record.method["pairs"]
    assert finished.record.noise is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_transformer_with_prompts_and_lengths(beir: Path, bert_model: Path, tmp_path: Path, precision: str) -> None:
    run = opera.adapt(
        beir,
        model=bert_model,
        out=tmp_path / "run",
        **SMALL,
        precision=precision,
        max_query_length=8,
        max_passage_length=12,
    )
    assert run.settings["precision"] == precision
    assert (run.settings["max_query_length"], run.settings["max_passage_length"]) == (8, 12)
    saved = SentenceTransformer(str(run.model_path), device="cpu")
    assert (saved[0].query_length, saved[0].document_length) == (None, None), "they are the run's, not the model's"
    assert saved.prompts == {"query": "common1 ", "document": "common2 "}


def test_a_roundabout_path_does_not_hide_the_data_folder(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path
) -> None:
    folder = make_beir()
    for overwrite in (False, True):
        with pytest.raises(RunFolderError, match="is not empty and holds no run"):
            opera.adapt(
                folder, model=static_model, out=tmp_path / "no" / ".." / folder.name, overwrite=overwrite, **SMALL
            )
    assert {path.name for path in folder.iterdir()} == {"corpus.jsonl", "queries.jsonl", "qrels"}


def test_someone_elses_run_json_is_no_run(beir: Path, static_model: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name": "my experiment"}')
    (tmp_path / "model").mkdir()
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(RunFolderError, match="holds no run"):
            opera.adapt(beir, model=static_model, out=tmp_path, **options, **SMALL)
    assert (tmp_path / "model").is_dir()


def test_a_folder_with_other_things_is_not_written_to(beir: Path, static_model: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(RunFolderError, match="is not empty and holds no run"):
            opera.adapt(beir, model=static_model, out=tmp_path, overwrite=overwrite, **SMALL)
    with pytest.raises(RunFolderError, match="is a file"):
        opera.adapt(beir, model=static_model, out=tmp_path / "thesis.tex", **SMALL)
    with pytest.raises(RunFolderError, match="not a run folder"):
        Run.open(tmp_path)


def test_what_a_killed_start_left_is_no_obstacle(beir: Path, static_model: Path, tmp_path: Path) -> None:
    (tmp_path / ".run.json.part").write_text("{")
    run = opera.adapt(beir, model=static_model, out=tmp_path, **SMALL)
    assert run.finished
    assert not (tmp_path / ".run.json.part").exists()


@pytest.mark.slow
@pytest.mark.shared
def test_learning_on_nfcorpus(shared: Path, tmp_path: Path) -> None:
    run = opera.adapt(
        shared / "data" / "nfcorpus",
        model=shared / "models" / "potion-base-4m",
        out=tmp_path / "run",
        max_steps=100,
        temperature=0.05,
        learning_rate=1e-2,
    )
    assert run.measures["after"]["nDCG@10"] > run.measures["before"]["nDCG@10"] + 0.05


def test_a_folder_that_another_process_trains_into_is_refused(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opera.core.locks.PATIENCE", 0.0)
    refused: list[str] = []

    class Intruder(TrainerCallback):
        def on_step_end(self, *arguments: object, **others: object) -> None:
            for options in ({}, {"resume": True}, {"overwrite": True}):
                with pytest.raises(RunFolderError, match=r"process .* trains into it; wait until it is done") as caught:
                    opera.adapt(beir, model=static_model, out=tmp_path / "run", **options, **FAST)
                refused.append(str(caught.value))

    run = opera.adapt(
        beir, model=static_model, out=tmp_path / "run", callbacks=[Intruder()], **{**FAST, "max_steps": 1}
    )
    assert run.finished
    assert len(refused) >= 3
    assert not (tmp_path / "run" / ".running").exists()


def test_an_error_marks_the_run_as_failed_and_resume_goes_on(beir: Path, static_model: Path, tmp_path: Path) -> None:
    class Broken(TrainerCallback):
        def on_step_begin(self, *arguments: object, **others: object) -> None:
            assert Run.open(tmp_path / "run").record.status == "running"
            raise RuntimeError("the first step fails")

    with pytest.raises(RuntimeError, match="the first step fails"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", callbacks=[Broken()], **SMALL)
    assert Run.open(tmp_path / "run").record.status == "failed"
    assert opera.adapt(beir, model=static_model, out=tmp_path / "run", resume=True, **SMALL).finished


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_trains_where_the_caller_computes_no_gradients(
    mode: Callable[[], AbstractContextManager[None]], beir: Path, static_model: Path, tmp_path: Path
) -> None:
    with mode():
        run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)
        measured = opera.evaluate(beir, model=tmp_path / "run").measures
        model = load_model(static_model, "cpu")
    assert run.measures["fine_tuned"] != run.measures["before"]
    assert measured["nDCG@10"] == run.measures["after"]["nDCG@10"]
    assert not model[0].embedding.weight.is_inference()


@pytest.mark.parametrize(
    "data", [None, {"query": ["a"]}, pd.DataFrame({"query": ["a"]})], ids=["None", "dict", "frame"]
)
def test_data_of_another_kind_are_refused(data: Any, static_model: Path, tmp_path: Path) -> None:
    """The columns of a DataFrame were taken for paths."""
    with pytest.raises(DataError, match=r"^data: must be a path, a RetrievalData or a list of these, got '\w+'; a"):
        opera.adapt(data, model=static_model, out=tmp_path / "run")
