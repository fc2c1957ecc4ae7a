"""The whole path, with real training in seconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import opera
from opera.core.errors import DataError, InputError, ModelError, RunFolderError, SettingError, TrainingError
from opera.methods import METHODS
from opera.retrieval.measures import FULL_MEASURES
from opera.runs.folder import Run

InterruptedAt = Callable[[int], AbstractContextManager[None]]

FAST: dict[str, Any] = {
    "max_steps": 60,
    "per_device_train_batch_size": 16,
    "learning_rate": 0.1,
    "temperature": 0.1,
    "save_steps": 20,
}
SMALL: dict[str, Any] = {**FAST, "max_steps": 8, "save_steps": 4, "learning_rate": 1e-3}


def weights(run: Run) -> str:
    file = next(run.model_path.rglob("model.safetensors"))
    return hashlib.sha256(file.read_bytes()).hexdigest()


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
    assert set(about["seconds"]) == {"load", "evaluate_before", "score_and_mine", "train", "evaluate_after"}
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
    assert trace["alpha"][59].as_py() == pytest.approx(5, abs=0.01)
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


@pytest.mark.parametrize("interval", [1, 7, "epoch"])
def test_an_interrupted_run_resumes_to_the_same_weights(
    beir: Path, bert_model: Path, tmp_path: Path, interrupted_at: InterruptedAt, interval: object
) -> None:
    settings = {**SMALL, "update_interval": interval, "precision": "fp32", "gradient_accumulation_steps": 2}
    whole = opera.adapt(beir, model=bert_model, out=tmp_path / "whole", **settings)

    with interrupted_at(6):
        opera.adapt(beir, model=bert_model, out=tmp_path / "cut", **settings)
    assert Run.open(tmp_path / "cut").record.status == "running"
    with pytest.raises(ModelError, match="this run is not finished and holds no model yet"):
        opera.evaluate(beir, model=tmp_path / "cut")
    with pytest.raises(RunFolderError, match="holds another run"):
        opera.adapt(beir, model=bert_model, out=tmp_path / "cut", **settings)
    with pytest.raises(RunFolderError, match="was started differently") as caught:
        opera.adapt(beir, model=bert_model, out=tmp_path / "cut", resume=True, **{**settings, "temperature": 0.5})
    assert "temperature: the run has 0.1, this call 0.5" in str(caught.value)
    resumed = opera.adapt(beir, model=bert_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 4
    assert resumed.trace().drop_columns("seconds") == whole.trace().drop_columns("seconds")
    assert weights(resumed) == weights(whole)
    assert opera.adapt(beir, model=bert_model, out=tmp_path / "cut", resume=True, **settings).finished


def test_overwrite_replaces_the_run_and_spares_other_files(beir: Path, static_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = opera.adapt(beir, model=static_model, out=out, method="ft", **SMALL)
    (out / "my-notes.txt").write_text("keep me")
    second = opera.adapt(beir, model=static_model, out=out, method="sp", overwrite=True, **SMALL)
    assert second.settings["method"] == "sp"
    assert weights(first) == weights(second)  # the same folder
    assert (out / "my-notes.txt").read_text() == "keep me"
    assert second.record.method["kept_pairs"] == int(0.25 * second.record.method["pairs"])


def test_dev_evaluations_early_stopping_and_best_model(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path
) -> None:
    run = opera.adapt(
        make_beir(dev=True),
        model=static_model,
        out=tmp_path / "run",
        **{**FAST, "max_steps": 400, "save_steps": 10, "learning_rate": 0.05},
        eval_steps=10,
        early_stopping_patience=3,
        load_best_model_at_end=True,
    )
    training = run.training
    assert training.steps < 400
    assert training.best_step <= training.steps
    assert training.best_value > 0
    assert len(run.trace()) == training.steps


def test_a_missing_dev_split_is_drawn_and_said(beir: Path, static_model: Path, tmp_path: Path) -> None:
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL, eval_steps=4)
    assert run.record.data.notes == ["no dev split: drew 4 of the 40 train queries with seed 0"]
    assert run.record.method["queries"] == 36
    without = opera.adapt(beir, model=static_model, out=tmp_path / "without", **SMALL)
    assert without.record.method["queries"] == 40


@pytest.mark.parametrize("method", ["infobatch", "sp+dp"])
def test_methods_with_state_of_their_own_resume_to_the_same_weights(
    method: str, beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    settings = {**SMALL, "max_steps": 12, "method": method}
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)

    with interrupted_at(10):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 8
    assert weights(resumed) == weights(whole)
    assert resumed.pairs() == whole.pairs()


def test_every_draw_is_recorded(finished: Run) -> None:
    pairs = finished.pairs()
    assert sum(pairs["times_drawn"].to_pylist()) == 60 * 16
    assert not any(pairs["injected"].to_pylist())
    assert pairs.num_rows == finished.record.method["pairs"]
    assert finished.record.noise is None


def test_infobatch_weights_reach_the_loss(beir: Path, static_model: Path, tmp_path: Path) -> None:
    """With ρ = 0 nothing is left out and every weight is 1; with ρ = 0.5 the same seed trains to other weights."""
    runs = [
        opera.adapt(beir, model=static_model, out=tmp_path / str(rho), method="infobatch", rho=rho, **SMALL)
        for rho in (0.0, 0.5)
    ]
    assert weights(runs[0]) != weights(runs[1])
    thresholds = runs[0].trace()["query_threshold"].to_pylist()
    assert thresholds[0] is None  # nothing seen yet
    assert thresholds[-1] > 0


@pytest.mark.parametrize("kind", ["random", "hard"])
def test_noise_is_injected_recorded_and_counted(kind: str, beir: Path, static_model: Path, tmp_path: Path) -> None:
    noise = {"noise": kind, "noise_share": 0.3, **({"noise_range": (5, 60)} if kind == "hard" else {})}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", method="sp", k=0.5, **SMALL, **noise)
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


def test_evaluating_a_run_at_another_grade_never_asks_a_training_query(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path
) -> None:
    """The run's own splits stay, whatever grade is asked for; the grades are the original ones."""
    folder = make_beir()
    (folder / "qrels" / "test.tsv").unlink()
    runs = {
        grade: opera.adapt(
            folder, model=static_model, out=tmp_path / str(grade), method="ft", relevant_grade=grade, seed=5, **SMALL
        )
        for grade in (1, 2)
    }
    for run in runs.values():
        trained = set(run.pairs()["query_id"].to_pylist())
        for grade in (None, 1, 2):
            found = opera.evaluate(folder, model=run.path, relevant_grade=grade)
            assert not trained & set(found.query_ids)
    assert opera.evaluate(folder, model=runs[2].path, measures=FULL_MEASURES).measures == runs[2].measures["after"]
    loose = opera.evaluate(folder, model=runs[2].path, measures=FULL_MEASURES, relevant_grade=1)
    assert loose.measures != runs[2].measures["after"]


def test_a_checkpoint_of_other_pairs_is_refused(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted_at: InterruptedAt
) -> None:
    settings = {**SMALL, "noise": "random", "noise_share": 0.3}
    with interrupted_at(6):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)

    from opera.training_set import noise

    monkeypatch.setattr(noise.RandomCandidates, "draw", lambda self, query, rng, count: np.arange(count) + 60)
    with pytest.raises(TrainingError, match="belongs to other training pairs"):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)


def test_given_negatives_that_noise_made_positive_are_left_out(static_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    records = [
        {"query": f"t{i % 12}w5 common{i}", "pos": [f"t{i}w1"], "neg": [f"t{j}w1" for j in range(12) if j != i]}
        for i in range(12)
    ]
    path.write_text("\n".join(json.dumps(record) for record in records))
    run = opera.adapt(path, model=static_model, out=tmp_path / "run", **SMALL, noise="random", noise_share=0.5)
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


def test_hard_negatives(beir: Path, static_model: Path, tmp_path: Path) -> None:
    run = opera.adapt(
        beir, model=static_model, out=tmp_path / "run", **SMALL, negatives="hard", range=(2, 40), train_group_size=4
    )
    assert run.record.negatives.kind == "hard"
    assert run.record.negatives.listed > 0
    assert run.settings["range"] == [2, 40]


def test_flag_files_train_with_their_negatives(static_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    records = [
        {
            "query": f"t{i % 12}w5 t{i % 12}w6 common{i}",
            "pos": [f"t{i % 12}w1 common{i}"],
            "neg": [f"t{(i + 1) % 12}w2"],
        }
        for i in range(20)
    ]
    path.write_text("\n".join(json.dumps(record) for record in records))
    run = opera.adapt(path, model=static_model, out=tmp_path / "run", **SMALL)
    assert run.settings["negatives"] == "given"
    assert run.record.data.notes == ["no test split: drew 2 of the 20 train queries with seed 0"]


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
    assert (saved[0].query_length, saved[0].document_length) == (8, 12)
    assert saved.prompts == {"query": "common1 ", "document": "common2 "}


def test_a_checkpoint_cut_off_while_written_falls_back_to_the_one_before(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "max_steps": 12}
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)

    from opera.training import checkpoint

    replace_file = checkpoint.replace_file

    def cut(path: Path, write: Callable[[Path], Any]) -> None:
        if path.parent.name == "checkpoint-8":
            raise KeyboardInterrupt
        replace_file(path, write)

    monkeypatch.setattr(checkpoint, "replace_file", cut)
    with pytest.raises(KeyboardInterrupt):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    monkeypatch.undo()
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 4
    assert weights(resumed) == weights(whole)
    assert resumed.trace().drop_columns("seconds") == whole.trace().drop_columns("seconds")


def test_a_run_on_data_without_a_test_split_can_be_measured_again(static_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        "\n".join(json.dumps({"query": f"t{i % 12}w5 common{i}", "pos": [f"t{i % 12}w1"]}) for i in range(20))
    )
    run = opera.adapt(path, model=static_model, out=tmp_path / "run", **SMALL, corpus_text="text", seed=3)
    assert opera.evaluate(path, model=run.path, measures=FULL_MEASURES).measures == pytest.approx(run.measures["after"])
    with pytest.raises(DataError, match="has no split 'test'"):
        opera.evaluate(path, model=static_model)


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


def test_dev_splits_without_a_relevant_document_are_refused_first(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path
) -> None:
    folder = make_beir(dev=True)
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\ndev0\td0\t0\n")
    with pytest.raises(DataError, match="split 'dev' has no judgement above 0"):
        opera.adapt(folder, model=static_model, out=tmp_path / "run", eval_steps=2, **SMALL)
    assert not (tmp_path / "run").exists()


BAD: list[tuple[dict[str, Any], type[InputError], str]] = [
    ({"max_steps": 0}, SettingError, "max_steps: must be greater than or equal to 1, got 0"),
    ({"method": "spp"}, SettingError, "did you mean 'sp'"),
    ({"method": "sp", "k": 0.0001}, SettingError, "all are pruned"),
    ({"negatives": "hard", "range": (500, 600)}, SettingError, "starts past the end of the corpus"),
    ({"negatives": "given"}, SettingError, "holds no negatives"),
    ({"alpha_start": 1.0}, SettingError, "which must lie between 0 and 1"),
    ({"max_query_length": 5}, SettingError, "reads whole texts"),
    ({"eval_steps": 5, "metric_for_best_model": "NDGC"}, SettingError, "unknown measure 'NDGC'"),
    ({"optim": "adamw_torhc"}, SettingError, "transformers refuses the settings"),
    ({"lr_scheduler_type": "liner"}, SettingError, "lr_scheduler_type: must be 'linear'"),
    ({"noise": "random"}, SettingError, "noise=random needs noise_share"),
    ({"noise_share": 0.5}, SettingError, "noise_share=0.5 needs noise=random or hard, got none"),
    ({"noise": "grade", "noise_grade": 1}, SettingError, "noise_grade=1 must be below relevant_grade=1"),
    ({"noise": "grade", "noise_grade": 0}, SettingError, "has no train judgement with a score from 0 to 0"),
    ({"noise": "hard", "noise_share": 0.1, "noise_range": (500, 600)}, SettingError, "noise_range=500:600 starts past"),
    ({"relevant_grade": 3}, DataError, "nothing to train on"),
    ({"method": "sp+dp", "k": 0.0001}, SettingError, "all are pruned"),
    ({"noise": "random", "noise_share": 0.99}, SettingError, "noise_share: must be less than or equal to 0.95"),
    ({"method": "sp+cbs", "score": "similarity"}, SettingError, "score: must be 'cbs', got 'similarity'"),
    ({"pool_weighting": "pairs", "levels": "document"}, SettingError, "levels=document samples queries uniformly"),
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


def test_a_folder_with_other_things_is_not_written_to(beir: Path, static_model: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(RunFolderError, match="is not empty and holds no run"):
            opera.adapt(beir, model=static_model, out=tmp_path, overwrite=overwrite, **SMALL)
    with pytest.raises(RunFolderError, match="is a file"):
        opera.adapt(beir, model=static_model, out=tmp_path / "thesis.tex", **SMALL)
    with pytest.raises(RunFolderError, match="not a run folder"):
        Run.open(tmp_path)


@pytest.mark.shared
def test_pretrained_figures_on_nfcorpus(shared: Path) -> None:
    found = opera.evaluate(shared / "data" / "nfcorpus", model=shared / "models" / "potion-base-4m").measures
    assert found["nDCG@10"] == pytest.approx(0.227, abs=0.001)
    assert found["retrieved_ideal_nDCG@10"] == pytest.approx(0.303, abs=0.001)
    assert found["R@20"] == pytest.approx(0.132, abs=0.001)


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
