"""Locating models; the splits and texts that a run's model was trained on are used again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opera
from grids import write_unfinished_run
from opera.core.errors import DataError
from opera.retrieval.locate import with_run_splits
from opera.retrieval.measures import FULL_MEASURES
from small_runs import SMALL


def test_dev_of_a_run_that_trained_on_it_in_the_end_is_named(
    beir: Path, static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"max_steps": 12, "per_device_train_batch_size": 8, "learning_rate": 0.05, "method": "ft"}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", refit=True, **settings)
    assert run.record.guard is not None
    assert run.record.guard.refit
    for split in ("test", "dev"):
        caplog.clear()
        with caplog.at_level("INFO", logger="opera"):
            opera.evaluate(beir, model=run.path, split=split)
        assert ("dev scores are too high" in caplog.text) is (split == "dev")


def test_a_model_is_measured_on_the_splits_and_grades_of_a_run(
    static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [(f"t{number % 12}w5 q{number}", f"t{number % 12}w1 {number // 3}", 1 + number % 3) for number in range(90)]
    data = opera.load_data(pairs=pairs)
    data.write_beir(tmp_path / "data")
    one, other = (
        opera.adapt(
            tmp_path / "data", model=static_model, out=tmp_path / f"{seed}", **SMALL,
            seed=seed, relevant_grade=1 + seed, expected_documents="new", method="ft",
        )
        for seed in (0, 1)
    )  # fmt: skip
    names = [measure for measure in one.measures["final"] if measure.startswith("nDCG")]
    final = opera.evaluate(one.path, measures=names).measures
    assert final == pytest.approx({name: one.measures["final"][name] for name in names})
    assert opera.evaluate(one.path, measures=names, relevant_grade=1).measures == pytest.approx(final)
    base = opera.evaluate(one.path, model=static_model, measures=names).measures
    assert base == pytest.approx({name: one.measures["base"][name] for name in names})
    with caplog.at_level("INFO", logger="opera"):
        assert opera.evaluate(one.path, model=other.path).query_ids == one.per_query()["query_id"].to_pylist()
    assert "so its scores are too high" in caplog.text


def test_dev_of_one_of_several_data_sets_is_that_of_the_run(static_model: Path, tmp_path: Path) -> None:
    """The data sets share documents, so what one of them holds out leaves train of the other."""
    files = []
    for name, queries_per_document in (("a", 2), ("b", 1)):
        files.append(tmp_path / f"{name}.csv")
        rows = [f"t{number % 12}w5 {name}{number},t1w1 {number // queries_per_document}" for number in range(120)]
        files[-1].write_text("\n".join(["query,document", *rows]))
    run = opera.adapt(files[0], also=files[1:], model=static_model, out=tmp_path / "run", **SMALL, method="ft", seed=1)
    dev = [with_run_splits(opera.load_data(file), run.path).split("dev") for file in files]
    assert run.record.guard is not None
    assert sum(len(split.query_rows) for split in dev) == run.record.guard.dev_queries


def test_a_run_on_other_data_or_no_run_changes_nothing(beir: Path, tmp_path: Path) -> None:
    data = opera.load_data(beir)
    write_unfinished_run(tmp_path / "run", {"method": "ft"}, data.source, fingerprint="of other data")
    assert with_run_splits(data, tmp_path / "run") is data
    assert with_run_splits(data, tmp_path) is data
    assert with_run_splits(data, "minilm") is data


def test_a_run_on_data_without_a_test_split_can_be_measured_again(static_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        "\n".join(json.dumps({"query": f"t{i % 12}w5 common{i}", "pos": [f"t{i % 12}w1"]}) for i in range(20))
    )
    run = opera.adapt(path, model=static_model, out=tmp_path / "run", **SMALL, corpus_text="text", seed=3)
    assert opera.evaluate(path, model=run.path, measures=FULL_MEASURES).measures == pytest.approx(run.measures["final"])
    with pytest.raises(DataError, match="has no split 'test'"):
        opera.evaluate(path, model=static_model)
    other = opera.evaluate(run.path, model=static_model)  # on the run's test queries
    assert len(other.query_ids) == run.per_query().num_rows
    assert not set(other.query_ids) & set(run.pairs()["query_id"].to_pylist())
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    assert opera.evaluate(copy, model=run.path, measures=FULL_MEASURES).measures == pytest.approx(run.measures["final"])
    with path.open("a") as file:
        file.write('\n{"query": "t1w5 new", "pos": ["t1w1 new"]}')
    for changed, options in ((path, {"model": run.path}), (run.path, {})):
        with pytest.raises(DataError, match="has no split 'test'"):
            opera.evaluate(changed, **options)
