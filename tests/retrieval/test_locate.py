"""Locating models; the splits and texts that a run's model was trained on are used again."""

import json
import shutil
from pathlib import Path

import pytest

import opera
from commands import opera_here
from grids import write_unfinished_run
from opera.data import Mixture, load_all
from opera.data.names import TableSource
from opera.identity import Origin
from opera.retrieval.locate import with_run_splits
from opera.retrieval.measures import FULL_MEASURES
from opera.run_folder.folder import ORIGIN_FILE, Run
from small_runs import SMALL


def test_dev_of_a_run_that_trained_on_it_in_the_end_is_named(train, beir, caplog):
    settings = {"max_steps": 12, "per_device_train_batch_size": 8, "learning_rate": 0.05, "method": "ft"}
    run = train(refit=True, **settings)
    assert run.record.guard.refit
    for split in ("test", "dev"):
        caplog.clear()
        with caplog.at_level("INFO", logger="opera"):
            opera.evaluate(beir, model=run.path, split=split)
        queries = run.record.guard.dev_queries
        assert (f"{queries} of these {queries} dev queries, so its scores are too high" in caplog.text) == (
            split == "dev"
        )


def test_a_model_is_measured_on_the_splits_and_grades_of_a_run(static_model, tmp_path, caplog):
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
    is_trained = other.record.guard.mixing_weight > 0  # else the run kept its base model
    assert ("so its scores are too high" in caplog.text) is is_trained


def copies_of_its_model(run: opera.Run, folder: Path) -> list[Path]:
    """The run, its model, and a copy of its model."""
    return [run.path, run.model_path, Path(shutil.copytree(run.model_path, folder / "copy"))]


def test_a_run_warns_of_queries_that_its_base_model_was_trained_on(static_model, tmp_path, caplog):
    """Whether the base model is the run, its folder ``model``, a copy, or a model that was trained further."""
    data, other = tmp_path / "pairs.csv", tmp_path / "others.csv"
    lines = [f"t{number % 12}w5 q{number},t{number % 12}w1 {number // 3}" for number in range(60)]
    data.write_text("\n".join(["query,document", *lines]))
    other.write_text("\n".join(["query,document", *(line.replace("q", "common") for line in lines)]))
    settings = {**SMALL, "method": "ft", "guard": False, "max_steps": 2}
    run = opera.adapt(data, model=static_model, out=tmp_path / "run", **settings)
    further = opera.adapt(other, model=run.model_path, out=tmp_path / "further", **settings)
    assert set(Origin.read(run.model_path).queries) < set(Origin.read(further.model_path).queries)
    models = [*copies_of_its_model(run, tmp_path), further.model_path]
    warnings = []
    for number, model in enumerate(models):
        caplog.clear()
        opera.adapt(data, model=model, out=tmp_path / f"{number}", **settings, seed=1)
        warnings += [line for line in caplog.messages if "dev and test queries, so their scores" in line]
    assert [line.partition(" was trained on ")[0] for line in warnings] == [f"warning: {model}" for model in models]
    assert len({line.partition(" was trained on ")[2] for line in warnings}) == 1
    contents = (run.model_path / ORIGIN_FILE).read_bytes()
    assert not any(text in contents for text in (b"t1w5", b"pairs", str(tmp_path).encode()))
    assert len(contents) < 4000 + 8 * 60


def test_a_run_that_keeps_the_base_model_has_not_trained_it(static_model, tmp_path):
    (tmp_path / "data").mkdir()
    for split, shift in (("train", 1), ("dev", 0), ("test", 0)):  # the base model finds equal words
        rows = [f"t{n}w{m} {split},t{(n + shift) % 12}w{m}" for n in range(12) for m in range(8)]
        (tmp_path / "data" / f"{split}.csv").write_text("\n".join(["query,document", *rows]))
    settings = {**SMALL, "method": "ft", "learning_rate": 1.0}
    run = opera.adapt(tmp_path / "data", model=static_model, out=tmp_path / "run", **settings)
    assert run.record.guard.mixing_weight == 0
    assert len(Origin.read(run.model_path).queries) == 0


def test_dev_of_one_of_several_data_sets_is_that_of_the_run(static_model, tmp_path):
    """The data sets share documents, so what one of them holds out leaves train of the other."""
    files = []
    for name, queries_per_document in (("a", 2), ("b", 1)):
        files.append(tmp_path / f"{name}.csv")
        rows = [f"t{number % 12}w5 {name}{number},t1w1 {number // queries_per_document}" for number in range(120)]
        files[-1].write_text("\n".join(["query,document", *rows]))
    run = opera.adapt(files[0], also=files[1:], model=static_model, out=tmp_path / "run", **SMALL, method="ft", seed=1)
    dev = [with_run_splits(load_all([file]), run.path).joined.split("dev") for file in files]
    assert sum(len(split.query_rows) for split in dev) == run.record.guard.dev_queries
    copy = copies_of_its_model(run, tmp_path)[-1]
    with pytest.raises(opera.DataError, match="split it together with other data; pass the run itself"):
        with_run_splits(load_all(files[:1]), copy)


def test_a_run_finds_its_data_from_another_folder_and_after_both_moved(static_model, tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"
    home.mkdir()
    documents = [f"t{number % 12}w1 {number}" for number in range(60)]
    (home / "docs.csv").write_text("\n".join(["id,text", *(f"d{row},{text}" for row, text in enumerate(documents))]))
    for name, split in (("train", range(60)), ("test", range(40, 60))):
        rows = [f"t{number % 12}w5 {name}{number},d{number}" for number in split]
        (home / f"{name}.csv").write_text("\n".join(["query,document", *rows]))
    (home / "more.csv").write_text("\n".join(["query,document", *(f"t1w5 more{at},other {at}" for at in range(60))]))
    (home / "wrong.csv").write_text("query_id,doc_id,decision\ntrain/q0,train/d0,wrong\n")
    words = [
        *("train", "--documents", "docs.csv", "--pairs", "train=train.csv", "--pairs", "test=test.csv"),
        *("--also", "more.csv", "--decisions", "wrong.csv", "--model", str(static_model), "--out", "run"),
        *("--method", "ft", "--steps", "4", "--batch-size", "8", "--set", "save_steps=4", "--set", "refit=false"),
    ]
    done = opera_here(home, words, monkeypatch, capsys)
    assert done.returncode == 0, done.stderr
    run = Run.open(home / "run")
    assert run.settings["decisions"] == [str(home / "wrong.csv")]
    assert run.record.sets is not None
    assert [part.source for part in run.record.sets] == [
        TableSource((("train", f"{home}/train.csv"), ("test", f"{home}/test.csv")), documents=f"{home}/docs.csv"),
        str(home / "more.csv"),
    ]
    card = (run.model_path / "README.md").read_text()
    assert str(home) not in card
    assert "docs.csv, train.csv, test.csv + more.csv" in card
    final = run.measures["final"]
    monkeypatch.chdir(tmp_path)
    measured = opera.evaluate(run.path, measures=FULL_MEASURES).measures
    assert measured == pytest.approx({name: final[name] for name in measured})
    moved = home.rename(tmp_path / "moved")
    assert opera.evaluate(moved / "run", measures=FULL_MEASURES).measures == measured
    (moved / "more.csv").unlink()
    with pytest.raises(opera.DataError, match=rf"{home}/more\.csv: no such file or folder; the run trained on it"):
        opera.evaluate(moved / "run")


def test_a_run_on_other_data_or_no_run_changes_nothing(beir, tmp_path):
    data = opera.load_data(beir)
    write_unfinished_run(tmp_path / "run", {"method": "ft"}, data.source, fingerprint="of other data")
    mixture = Mixture.of(data)
    for model in (tmp_path / "run", tmp_path, "minilm"):
        assert with_run_splits(mixture, model) is mixture


def test_a_run_on_data_without_a_test_split_can_be_measured_again(static_model, tmp_path, caplog):
    caplog.set_level("INFO", "opera")
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        "\n".join(json.dumps({"query": f"t{i % 12}w5 common{i}", "pos": [f"t{i % 12}w1"]}) for i in range(20))
    )
    run = opera.adapt(path, model=static_model, out=tmp_path / "run", **SMALL, corpus_text="text", seed=3)
    for model in copies_of_its_model(run, tmp_path):
        caplog.clear()
        measures = opera.evaluate(path, model=model, measures=FULL_MEASURES).measures
        assert measures == pytest.approx(run.measures["final"])
        note = f"note: using the splits, relevant_grade=1 and corpus_text=text of the run that made {model}"
        assert note in caplog.messages
    with pytest.raises(opera.DataError, match="has no split 'test'"):
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
        with pytest.raises(opera.DataError, match="has no split 'test'"):
            opera.evaluate(changed, **options)
