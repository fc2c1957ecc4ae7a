"""adapt, from data to run folder, with real training in seconds."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

import opera
from opera.methods import METHODS
from opera.methods.dynamic import cosine_schedule
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import load_model
from small_runs import FAST, SMALL, weights
from tiny_world import write_beir


@pytest.fixture(scope="module")
def runs(tmp_path_factory, beir, static_model) -> Callable[[str], opera.Run]:
    """A run of each method, made when it is asked for."""
    home, made = tmp_path_factory.mktemp("runs"), dict[str, opera.Run]()

    def run(method: str) -> opera.Run:
        settings = {**FAST, "guard": False}
        if "k" in METHODS[method].settings_class.model_fields:
            settings["k"] = 0.5
        if method not in made:
            made[method] = opera.adapt(beir, model=static_model, out=home / method, method=method, **settings)
        return made[method]

    return run


@pytest.fixture(scope="module")
def finished(runs) -> opera.Run:
    return runs("dp")


OFTEN = ("ft", "infobatch", "dp", "denoise")


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in METHODS]
)
def test_every_method_learns(method, runs):
    run = runs(method)
    assert run.finished
    before, after = run.measures["base"], run.measures["final"]
    assert after["nDCG@10"] > before["nDCG@10"] + 0.1
    assert set(FULL_MEASURES) == set(after) == set(before)


def test_the_run_folder_says_it_all(finished, beir):
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


def test_the_model_loads_plainly_and_measures_the_same(finished, beir):
    assert SentenceTransformer(str(finished.model_path), device="cpu").encode(["t1w1 t1w2"]).shape == (1, 24)
    for place in (finished.model_path, finished.path):
        again = opera.evaluate(beir, model=place, measures=FULL_MEASURES)
        assert again.measures == pytest.approx(finished.measures["final"])


def test_a_run_repeats_and_overwrite_spares_other_files(beir, static_model, tmp_path):
    out = tmp_path / "run"
    first = weights(opera.adapt(beir, model=static_model, out=out, method="dp", **SMALL))
    (out / "my-notes.txt").write_text("keep me")
    with torch.inference_mode():  # what the caller computes without gradients is not about training
        again = opera.adapt(beir, model=static_model, out=out, method="dp", overwrite=True, **SMALL)
        model = load_model(static_model, "cpu")
    assert weights(again) == first
    assert not model[0].embedding.weight.is_inference()
    assert (out / "my-notes.txt").read_text() == "keep me"


def test_a_transformer_in_half_precision_with_prompts_and_lengths(bert_model, tmp_path):
    topics = write_beir(tmp_path / "topics", n_docs=30, n_train=8, n_test=4)  # emulated bfloat16 is slow
    lengths = {"max_query_length": 8, "max_passage_length": 12}
    settings = {**SMALL, "max_steps": 2, "guard": False, "precision": "bf16", **lengths}
    run = opera.adapt(topics, model=bert_model, out=tmp_path / "run", **settings)
    assert {name: run.settings[name] for name in ("precision", *lengths)} == {"precision": "bf16", **lengths}
    saved = SentenceTransformer(str(run.model_path), device="cpu")
    assert (saved[0].query_length, saved[0].document_length) == (8, 12)
    assert saved.prompts == {"query": "common1 ", "document": "common2 "}


def test_a_folder_that_another_process_trains_into_is_refused_and_an_error_marks_the_run(train, tmp_path, monkeypatch):
    monkeypatch.setattr("opera.core.cache.PATIENCE", 0.0)

    class Broken(TrainerCallback):
        def on_step_begin(self, *arguments: object, **others: object) -> None:
            assert opera.Run.open(tmp_path / "run").record.status == "running"
            for options in ({}, {"resume": True}, {"overwrite": True}):
                with pytest.raises(opera.RunFolderError, match=r"process .* trains into it; wait until it is done"):
                    train(**options, **SMALL)
            raise RuntimeError("the first step fails")

    with pytest.raises(RuntimeError, match="the first step fails"):
        train(callbacks=[Broken], **SMALL)
    assert opera.Run.open(tmp_path / "run").record.status == "failed"
    assert not (tmp_path / "run" / ".running").exists()
    assert train(resume=True, **SMALL).finished


def test_a_frame_with_columns_of_its_own(static_model, tmp_path):
    rows = [(f"t{row % 9}w5 q{row}", f"t{row % 9}w1 common{row}") for row in range(60)]
    frame = pd.DataFrame([*rows, ("t1w5", None)], columns=["Ticket title", "KB article"])
    how = {"columns": {"query": "Ticket title", "document": "KB article"}, "model": static_model}
    with pytest.raises(opera.DataError, match=r"^pairs\[60\]: column 'KB article' must not be empty"):
        opera.adapt(frame, out=tmp_path / "run", **how)
    run = opera.adapt(frame, out=tmp_path / "run", skip_bad_rows=True, **how, **SMALL)
    assert run.finished
    assert run.record.data.counts["documents"] == 60
    assert "pairs,60," in (run.path / "skipped_rows.csv").read_text().replace('"', "")
