"""Runs on several data sets: draws by shares, negatives and rankings within a set, measures of each."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import opera
from commands import opera_here
from opera.config.recipe import make_recipe
from opera.data import Mixture, load_all, load_data
from opera.data.list_matching import with_teacher
from opera.deployment import export as export_module
from opera.run import write
from opera.training.build import build_training_set
from opera.training.prepare_data import prepare_data
from opera.training.trainer import make_sampler
from small_runs import FAST, SMALL, prepare
from tiny_world import write_beir


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> list[Path]:
    """Two data sets over the same words; the second has no test split of its own."""
    home = tmp_path_factory.mktemp("sets")
    first, second = write_beir(home / "first"), write_beir(home / "second", 60, 20, 4)
    (second / "qrels" / "test.tsv").unlink()
    return [first, second]


def prepared(sets: list[Path], model: Path, **settings: Any) -> Any:
    return prepare(sets, model, **{**SMALL, "guard": False, **settings})


def in_set(data: Mixture, rows: np.ndarray) -> np.ndarray:
    return np.searchsorted([document for _, document in data.first_rows], rows, side="right") - 1


@pytest.mark.parametrize("negatives", ["random", "hard"])
def test_negatives_are_documents_of_the_querys_own_set(negatives, sets, static_model):
    run = prepared(sets, static_model, negatives=negatives, method="dp")
    built = build_training_set(run)
    queries = np.arange(built.pairs.n_queries)
    owner = np.searchsorted([0, built.sets[1].first_query_index], queries, side="right") - 1
    for number, sampler in enumerate(make_sampler(built, run.recipe).sets):
        drawn = sampler.documents(np.arange(30), 5, 0, 1)
        assert (in_set(run.data.with_splits, drawn) == number).all()
    assert set(owner.tolist()) == {0, 1}
    assert (in_set(run.data.with_splits, built.pairs.pair_doc) == owner[built.pairs.pair_query]).all()


def test_every_part_of_an_accumulated_step_mixes_the_sets(sets, static_model):
    settings = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "mix": "equal"}
    run = prepared(sets, static_model, method="ft", **settings)
    sampler = make_sampler(build_training_set(run), run.recipe)
    batch = sampler.sample_step(0)
    assert [np.unique(part).tolist() for part in np.split(batch.sets, 2)] == [[0, 1], [0, 1]]
    assert np.bincount(batch.sets).tolist() == [16, 16]


def test_each_set_needs_a_relevant_document_in_its_dev(sets, tmp_path):
    """So that a run ends at once, and not after it has encoded the corpus."""
    second = shutil.copytree(sets[1], tmp_path / "second")
    (second / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\ntrain0\td1\t0\n")
    with pytest.raises(opera.DataError, match="second: split 'dev' has no judgement above 0: nothing to measure"):
        prepare_data(load_all([sets[0], second]), make_recipe(SMALL))


def test_a_teachers_ids_have_the_name_of_their_set(sets, tmp_path):
    path, data = tmp_path / "scores.tsv", load_all(sets)
    path.write_text("query_id\tdoc_id\tscore\nq0\td0\t1\n")
    with pytest.raises(opera.DataError, match="ids must be SET/ID, where SET is one of first, second"):
        with_teacher(data, path)
    rows = [("first/train0", "first/d1", 1), ("second/train1", "second/d2", 2), ("first/train0", "second/d0", 3)]
    path.write_text("query_id\tdoc_id\tscore\n" + "".join(f"{q}\t{d}\t{s}\n" for q, d, s in rows))
    scored = with_teacher(data, path)
    teacher = scored.joined.teacher
    assert teacher.scores.tolist() == [1, 2]
    assert data.joined.queries.ids(teacher.query_rows) == ["first/train0", "second/train1"]
    second = scored.data_sets[1]
    assert second.corpus.ids(second.teacher.doc_rows) == ["d2"]
    assert "2 of 3 scores match" in scored.joined.notes[0]


@pytest.mark.parametrize(("settings", "fraction"), [({}, None), ({"mix": "first=1,second=3"}, 0.25)])
def test_a_run_measures_each_set_on_its_own_documents(settings, fraction, sets, static_model, tmp_path):
    run = opera.adapt(sets[0], also=sets[1:], model=static_model, out=tmp_path / "run", method="ft", **FAST, **settings)
    first, second = run.record.sets
    assert (first.name, second.name) == ("first", "second")
    assert run.record.data.source == f"{sets[0]} + {sets[1]}"
    expected = first.counts["train_pairs"] / (first.counts["train_pairs"] + second.counts["train_pairs"])
    assert first.share_of_draws == pytest.approx(fraction or expected, abs=0.03)
    alone = opera.evaluate(load_data(sets[0]), model=static_model).measures
    assert first.test["base"]["nDCG@10"] == alone["nDCG@10"], "the other set's documents are not ranked"
    assert first.test["final"]["nDCG@10"] > first.test["base"]["nDCG@10"]
    counts = [part.counts["test_queries"] for part in run.record.sets]
    mean = np.average([part.test["final"]["nDCG@10"] for part in run.record.sets], weights=counts)
    assert run.measures["final"]["nDCG@10"] == pytest.approx(mean)
    evaluated = opera.evaluate(load_data(sets[1]), model=run.path)  # its test split was drawn by the run
    assert evaluated.measures["nDCG@10"] == pytest.approx(second.test["final"]["nDCG@10"])
    assert set(run.record.guard.dev_parts) == {"first", "second"}
    assert {query.split("/")[0] for query in run.per_query()["query_id"].to_pylist()} == {"first", "second"}
    assert "opera train first \\\n  --also second" in (run.model_path / "README.md").read_text()
    measured = export_module._test_data(str(run.path), None, {})
    assert [part.name for part in measured.data_sets] == ["first", "second"], "an export measures on them too"


def test_the_command_takes_more_sets(sets, static_model, tmp_path, monkeypatch, capsys):
    command = ["train", str(sets[0]), "--also", str(sets[1]), "--mix", "equal", "--model", str(static_model)]
    command += ["--steps", "4", "--set", "guard=false", "--method", "ft", "--out", "run", "--json"]
    done = opera_here(tmp_path, command, monkeypatch, capsys)
    assert [part["name"] for part in json.loads(done.stdout)["sets"]] == ["first", "second"]


def test_listed_pairs_carry_the_line_and_the_columns_of_their_own_file(static_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("shop", "bank"):
        rows = [f"{name} agent {row};{name}word{row};answer {name} {row}\n" for row in range(60)]
        Path(f"{name}.csv").write_text("agent;question;answer\n" + "".join(rows), encoding="utf-8")
    settings = {**FAST, "guard": False, "max_steps": 2}
    run = opera.adapt("shop.csv", also=["bank.csv"], model=static_model, out="run", **settings)
    items = run.review()["train"]["pairs"]
    assert {item["row"]["file"] for item in items} == {"shop.csv", "bank.csv"}
    for item in items:
        name, row = item["row"]["file"].removesuffix(".csv"), int(item["row"]["line"]) - 2
        assert item["query"] == f"{name}word{row}"
        assert item["row"]["my:agent"] == f"{name} agent {row}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mix": "first=1"}, "mix=first=1: must have a number for first, second, and no other name"),
        ({"adapter": "query"}, "adapter=query: an adapter trains on one data set"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message, sets, static_model):
    with pytest.raises(opera.SettingError, match=message):
        prepared(sets, static_model, **settings)


def test_pairs_are_written_in_parts(sets, static_model, tmp_path, monkeypatch):
    tables = []
    for most in (2**20, 7):
        monkeypatch.setattr(write, "PAIRS_AT_ONCE", most)
        run = opera.adapt(sets[0], also=sets[1:], model=static_model, out=tmp_path / str(most), **SMALL)
        tables.append(run.pairs())
    assert pq.ParquetFile(tmp_path / "7" / "pairs.parquet").num_row_groups == -(-len(tables[0]) // 7) > 1
    assert tables[0] == tables[1]
