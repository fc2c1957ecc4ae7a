"""adapt, from data to run folder, with real training in seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from opera.run_folder.folder import Run
from small_runs import FAST, SMALL, weights
from tiny_world import write_beir


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Callable[[str], Run]:
    """A run of each method, made when it is asked for."""
    home, made = tmp_path_factory.mktemp("runs"), dict[str, Run]()

    def run(method: str) -> Run:
        settings = {**FAST, "guard": False}
        if "k" in METHODS[method].settings_class.model_fields:
            settings["k"] = 0.5
        if method not in made:
            made[method] = opera.adapt(beir, model=static_model, out=home / method, method=method, **settings)
        return made[method]

    return run


@pytest.fixture(scope="module")
def finished(runs: Callable[[str], Run]) -> Run:
    return runs("dp")


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_learns(method: str, runs: Callable[[str], Run]) -> None:
    run = runs(method)
    assert run.finished
    before, after = run.measures["base"], run.measures["final"]
    assert after["nDCG@10"] > before["nDCG@10"] + 0.1
    assert set(FULL_MEASURES) == set(after) == set(before)


def test_the_run_folder_says_it_all(finished: Run, beir: Path) -> None:
    about = json.loads((finished.path / "run.json").read_text())
    assert about["status"] == "finished"
    settings = {name: about["settings"][name] for name in ("method", "learning_rate", "negatives")}
    assert settings == {"method": "dp", "learning_rate": 0.1, "negatives": "random"}
    assert (about["seed"], about["training"]["lag"]) == (0, 1)
    assert {"load", "train"} < set(about["seconds"])
    assert {"python", "torch", "opera-retrieval"} <= set(about["versions"])
    assert about["data"]["fingerprint"] == opera.load_data(beir).fingerprint
    assert about["data"]["counts"]["documents"] == 120
    trace, pairs = finished.trace(), finished.pairs()
    assert trace.column_names == [
        "step", "loss", "learning_rate", "alpha", "r", "beta", "v",
        "query_threshold", "document_threshold", "seconds",
    ]  # fmt: skip
    assert trace["step"].to_pylist() == list(range(1, 61))
    assert (trace["alpha"][0].as_py(), trace["v"][0].as_py()) == (2, 0.25)
    assert trace["alpha"][59].as_py() == pytest.approx(cosine_schedule(2, 5, 59, 60))
    assert trace["learning_rate"].to_pylist() == pytest.approx([0.1 * (1 - step / 60) for step in range(60)])
    assert sum(pairs["times_drawn"].to_pylist()) == 60 * 16
    assert pairs.num_rows == finished.record.method["pairs"]
    table = finished.per_query()
    for when in ("base", "final"):
        for name, mean in finished.measures[when].items():
            assert np.mean(table[f"{when} {name}"].to_numpy()) == pytest.approx(mean)
    assert table["query_id"].to_pylist()[0].startswith("test")
    assert all(len(documents) == 10 for documents in table["final documents"].to_pylist())


def test_the_model_loads_plainly_and_measures_the_same(finished: Run, beir: Path) -> None:
    assert SentenceTransformer(str(finished.model_path), device="cpu").encode(["t1w1 t1w2"]).shape == (1, 24)
    for place in (finished.model_path, finished.path):
        again = opera.evaluate(beir, model=place, measures=FULL_MEASURES)
        assert again.measures == pytest.approx(finished.measures["final"])


def test_a_run_repeats_and_overwrite_spares_other_files(beir: Path, static_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = weights(opera.adapt(beir, model=static_model, out=out, method="dp", **SMALL))
    (out / "my-notes.txt").write_text("keep me")
    with torch.inference_mode():  # what the caller computes without gradients is not about training
        again = opera.adapt(beir, model=static_model, out=out, method="dp", overwrite=True, **SMALL)
        model = load_model(static_model, "cpu")
    assert weights(again) == first
    assert not model[0].embedding.weight.is_inference()
    assert (out / "my-notes.txt").read_text() == "keep me"


def test_a_transformer_in_half_precision_with_prompts_and_lengths(bert_model: Path, tmp_path: Path) -> None:
    topics = write_beir(tmp_path / "topics", n_docs=30, n_train=8, n_test=4)  # emulated bfloat16 is slow
    lengths = {"max_query_length": 8, "max_passage_length": 12}
    settings = {**SMALL, "max_steps": 2, "guard": False, "precision": "bf16", **lengths}
    run = opera.adapt(topics, model=bert_model, out=tmp_path / "run", **settings)
    assert {name: run.settings[name] for name in ("precision", *lengths)} == {"precision": "bf16", **lengths}
    saved = SentenceTransformer(str(run.model_path), device="cpu")
    assert (saved[0].query_length, saved[0].document_length) == (8, 12)
    assert saved.prompts == {"query": "common1 ", "document": "common2 "}


def test_a_folder_that_another_process_trains_into_is_refused_and_an_error_marks_the_run(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opera.core.cache.PATIENCE", 0.0)

    class Broken(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *arguments: object, **others: object) -> None:
            assert Run.open(tmp_path / "run").record.status == "running"
            for options in ({}, {"resume": True}, {"overwrite": True}):
                with pytest.raises(RunFolderError, match=r"process .* trains into it; wait until it is done"):
                    opera.adapt(beir, model=static_model, out=tmp_path / "run", **options, **SMALL)
            raise RuntimeError("the first step fails")

    with pytest.raises(RuntimeError, match="the first step fails"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", callbacks=[Broken], **SMALL)
    assert Run.open(tmp_path / "run").record.status == "failed"
    assert not (tmp_path / "run" / ".running").exists()
    assert opera.adapt(beir, model=static_model, out=tmp_path / "run", resume=True, **SMALL).finished


def test_a_frame_with_columns_of_its_own(static_model: Path, tmp_path: Path) -> None:
    rows = [(f"t{row % 9}w5 q{row}", f"t{row % 9}w1 common{row}") for row in range(60)]
    frame = pd.DataFrame([*rows, ("t1w5", None)], columns=["Ticket title", "KB article"])
    how: dict[str, Any] = {"columns": {"query": "Ticket title", "document": "KB article"}, "model": static_model}
    with pytest.raises(DataError, match=r"^pairs\[60\]: column 'KB article' must not be empty"):
        opera.adapt(frame, out=tmp_path / "run", **how)
    run = opera.adapt(frame, out=tmp_path / "run", skip_bad_rows=True, **how, **SMALL)
    assert run.finished
    assert run.record.data.counts["documents"] == 60
    assert "pairs,60," in (run.path / "skipped_rows.csv").read_text().replace('"', "")


def test_a_base_model_that_has_seen_the_test_queries_is_named(
    static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("query,document\n" + "".join(f"t{n % 12}w5 q{n},t{n % 12}w1 d{n}\n" for n in range(60)))
    first = opera.adapt(pairs, model=static_model, out=tmp_path / "first", **SMALL, seed=0, guard=False)
    with caplog.at_level("INFO", logger="opera"):
        opera.adapt(pairs, model=first.path, out=tmp_path / "second", **SMALL, seed=1)
    assert "dev and test queries, so their scores are too high" in caplog.text
