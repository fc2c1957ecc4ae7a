"""``opera train --kind reranker``: a folder with a cross-encoder, its record, and what it is compared with."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sentence_transformers import CrossEncoder

import opera
from backbones import write_reranker
from opera.core.errors import RunFolderError
from opera.identity import Origin
from opera.labels import estimate
from opera.run_folder.reranker_run import RerankerRun
from opera.run_folder.summary import Change
from small_runs import SMALL

SHORT = {"kind": "reranker", "max_steps": 4, "per_device_train_batch_size": 8, "depth": 10, "precision": "fp32"}
FILES = {"reranker.json", "per_query.parquet", "pairs.parquet", "model"}


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory) -> Path:
    return write_reranker(tmp_path_factory.mktemp("reranker") / "model")


@pytest.fixture(scope="module")
def reranker(tmp_path_factory, beir, cross_encoder) -> RerankerRun:
    """A trained reranker, which tests may read and not change."""
    out = tmp_path_factory.mktemp("trained") / "run"
    return opera.adapt(beir, model=cross_encoder, out=out, learning_rate=0.01, **SHORT)


def test_a_reranker_is_compared_with_its_first_stage_and_its_base(reranker, beir, cross_encoder):
    record, table = reranker.record, reranker.per_query()
    assert {path.name for path in reranker.path.iterdir()} == FILES
    measured = {"precision": "fp32", "measures": "nDCG@10", "depth": 10}
    base = opera.evaluate(beir, reranker=cross_encoder, **measured)
    final = opera.evaluate(beir, reranker=reranker.path, **measured)
    for name, result in {"first_stage": base, "base": base.reranked, "final": final.reranked}.items():
        assert record.measures[name]["nDCG@10"] == result.measures["nDCG@10"]
        assert table[f"{name} nDCG@10"].to_pylist() == result.per_query["nDCG@10"].tolist()
    assert record.changes["nDCG@10"] == final.reranked.changes["nDCG@10"]
    differences = final.reranked.per_query["nDCG@10"] - base.reranked.per_query["nDCG@10"]
    assert record.changes_from_base["nDCG@10"] == Change.of(differences)
    assert not record.new_head
    assert [record.steps, record.first_stage, record.method, record.depth] == [4, "bm25", "ft", 10]
    assert "than BM25 alone on held-out questions: nDCG@10" in reranker.headline


def test_the_model_loads_with_the_library_and_has_changed(reranker, cross_encoder):
    trained, base = (CrossEncoder(str(path), device="cpu") for path in (reranker.model_path, cross_encoder))
    pairs = [("t1w5 common1", "t1w2 t3w3"), ("t1w5", "t1w5 t1w6")]
    assert (trained.predict(pairs) != base.predict(pairs)).all()


def test_training_is_the_same_again_and_warns_of_its_queries(reranker, beir, cross_encoder, tmp_path, caplog):
    again = opera.adapt(beir, model=cross_encoder, out=tmp_path / "run", learning_rate=0.01, **SHORT)
    assert again.record.measures == reranker.record.measures
    opera.evaluate(beir, reranker=reranker.path, split="train", precision="fp32", depth=2)
    assert "was trained on" in caplog.text


@pytest.mark.parametrize("method", ["infobatch", "denoise", "sp"])
def test_methods_sample_the_pairs(method, beir, cross_encoder, static_model, tmp_path):
    run = opera.adapt(beir, model=cross_encoder, first_stage=static_model, method=method, out=tmp_path / "run", **SHORT)
    assert [run.record.method, run.record.first_stage] == [method, str(static_model)]
    assert run.record.settings["train_group_size"] == (2 if method == "denoise" else 5)


def test_denoise_lists_the_pairs_that_look_wrong(beir, cross_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "FEWEST", 50)
    call = {**SHORT, "max_steps": 8, "per_device_train_batch_size": 16}
    run = opera.adapt(beir, model=cross_encoder, method="denoise", out=tmp_path / "run", **call)
    data, pairs, noisy = opera.load_data(beir), run.pairs().to_pandas(), run.record.noisy_labels
    train = data.training_split()
    listed = train.pairs()
    assert pairs.query_id.tolist() == data.queries.ids(train.query_rows[listed.pair_query])
    assert pairs.doc_id.tolist() == data.corpus.ids(listed.pair_doc)
    assert noisy is not None
    assert noisy.visited == pairs.first_rank.notna().sum() >= 50
    suspicious = pairs[pairs.probability_wrong > 0.5].sort_values("probability_wrong", ascending=False)
    assert noisy.suspicious == len(suspicious) > 0
    written = pd.read_csv(run.path / "suspicious_pairs.csv", dtype=str)
    ids = ["query_id", "doc_id"]
    assert set(written[ids].itertuples(index=False)) == set(suspicious[ids].itertuples(index=False))
    assert written["query"].tolist() == data.queries.texts(data.queries.find_rows(written.query_id.tolist()))


def test_ft_compares_too_few_documents_for_an_estimate(reranker):
    assert reranker.record.noisy_labels is None
    assert not (reranker.path / "suspicious_pairs.csv").exists()
    assert reranker.pairs().column_names == ["query_id", "doc_id", "first_rank", "first_step"]


def test_an_encoder_gets_a_new_head(beir, bert_model, tmp_path, caplog):
    with caplog.at_level("INFO", logger="opera"):
        run = opera.adapt(beir, model=bert_model, out=tmp_path / "run", **SHORT)
    assert "has no head of a reranker, so it gets a new one" in caplog.text
    assert run.record.new_head
    assert run.record.measures.keys() == {"first_stage", "final"}
    assert run.record.changes_from_base == {}


def test_splits_that_a_run_drew_are_used_again(beir, static_model, cross_encoder, tmp_path):
    data = shutil.copytree(beir, tmp_path / "data")
    for split in ("test", "dev"):
        (data / "qrels" / f"{split}.tsv").unlink(missing_ok=True)
    call: dict[str, Any] = {"model": cross_encoder, "relevant_grade": 1, **SHORT}
    alone = opera.adapt(data, out=tmp_path / "alone", seed=5, **call)
    by_words = opera.evaluate(data, reranker=alone.path, depth=10, precision="fp32")
    assert by_words.query_ids == alone.per_query()["query_id"].to_pylist()
    dense = opera.adapt(data, model=static_model, out=tmp_path / "dense", seed=7, **SMALL)
    behind = opera.adapt(data, out=tmp_path / "behind", first_stage=dense.path, **call)
    assert behind.per_query()["query_id"].to_pylist() == dense.per_query()["query_id"].to_pylist()
    again = opera.evaluate(data, reranker=behind.path, depth=10, precision="fp32")
    assert again.query_ids == behind.per_query()["query_id"].to_pylist()


def test_a_reranker_that_trains_on_keeps_its_splits_and_remembers_its_queries(beir, cross_encoder, tmp_path, caplog):
    data = shutil.copytree(beir, tmp_path / "data")
    for split in ("test", "dev"):
        (data / "qrels" / f"{split}.tsv").unlink(missing_ok=True)
    first = opera.adapt(data, model=cross_encoder, out=tmp_path / "first", seed=0, **SHORT)
    second = opera.adapt(data, model=first.path, out=tmp_path / "second", seed=1, **SHORT)
    test_queries = [run.per_query()["query_id"].to_pylist() for run in (first, second)]
    assert test_queries[0] == test_queries[1]
    again = opera.evaluate(data, reranker=second.path, depth=10, precision="fp32")
    assert again.query_ids == test_queries[1]
    assert "was trained on" not in caplog.text

    with (data / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "new", "text": "t1w1"}\n')  # so the splits of first do not apply
    third = opera.adapt(data, model=first.path, out=tmp_path / "third", seed=1, **SHORT)
    queries = [Origin.read(run.model_path).queries for run in (first, third)]
    texts = opera.load_data(data).queries
    hashes = texts.digests[texts.find_rows(third.per_query()["query_id"].to_pylist())]
    known = int(np.isin(hashes, queries[0]).sum())
    assert known > 0
    assert f"{first.path} was trained on {known} of these" in caplog.text
    assert set(queries[0].tolist()) < set(queries[1].tolist())


def test_a_folder_is_replaced_only_with_overwrite(reranker, beir, cross_encoder, tmp_path):
    out = tmp_path / "run"
    call: dict[str, Any] = {"model": cross_encoder, "out": out, **SHORT}
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty and holds no reranker"):
        opera.adapt(beir, **call)
    (out / "notes.txt").unlink()
    first = opera.adapt(beir, **call)
    with pytest.raises(RunFolderError, match="holds a reranker; pass --overwrite"):
        opera.adapt(beir, **call)
    (out / "model" / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"--overwrite would delete .*notes\.txt"):
        opera.adapt(beir, **{**call, "overwrite": True})
    (out / "model" / "notes.txt").unlink()
    second = opera.adapt(beir, **{**call, "overwrite": True, "seed": 1})
    assert [first.record.seed, second.record.seed] == [0, 1]
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_doors_without_rerankers_say_so(reranker, beir, cross_encoder, tmp_path):
    path, out, page = reranker.path, tmp_path / "out", {"out": tmp_path / "page.html"}
    base: dict[str, Any] = {"model": cross_encoder, "out": out}
    calls = [
        (lambda: opera.search(beir, "t1w5", model=path), "pass it with --reranker"),
        (lambda: opera.export(path, out=out, forms=["onnx"], measure=False), "pass it with --reranker"),
        (lambda: opera.compare(beir, kind="reranker", **base), "kind: must be"),
        (lambda: opera.adapt(beir, guard=True, **base, **SHORT), "--guard: does not apply to a reranker"),
        (lambda: opera.show(path, **page), "holds a reranker, not a run"),
        (lambda: opera.review(path, **page), "holds a reranker, not a run"),
        (lambda: opera.report(path, **page), "holds a reranker, not a run"),
    ]
    for call, message in calls:
        with pytest.raises(opera.InputError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_when_training_ends_early(beir, cross_encoder, tmp_path, monkeypatch):
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("opera.training.reranker.check_weights", stop)
    with pytest.raises(KeyboardInterrupt):
        opera.adapt(beir, model=cross_encoder, out=tmp_path / "run", **SHORT)
    assert list(tmp_path.iterdir()) == []
