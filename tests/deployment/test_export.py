"""Exported models: the same embeddings, measured again, in folders that others read."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import opera
from backbones import write_backbone
from opera.core.files import foreign_files
from opera.data import Mixture
from opera.deployment.export import Reference
from opera.deployment.onnx import load_onnx, save_portable, write_onnx
from opera.deployment.record import Export, write_card
from opera.retrieval.models import load_model
from opera.run_folder.folder import MODEL_FILES, ORIGIN_FILE
from small_runs import SMALL

TEXTS = ["t1w1 t2w2", "common1 common2 t3w3 t4w1 common5 t6w6 t7w7", "t5w5", " ".join(["t8w1"] * 60)]
SAME = 1e-5
"""Sums of a few hundred float32 products in another order differ by some 1e-7; two layers multiply that."""


@pytest.fixture(scope="session")
def exported(tmp_path_factory, beir, bert_model) -> Export:
    out = tmp_path_factory.mktemp("exported") / "out"
    return opera.export(bert_model, out=out, forms=["int8", "onnx"], data=beir)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bge", "qwen3", "e5", "bge-m3"])
def test_each_architecture_embeds_the_same(name, tmp_path):
    model = load_model(write_backbone(name, tmp_path / "model"), "cpu")
    save_portable(model, tmp_path / "out")
    write_onnx(model, tmp_path / "out" / "model.onnx")
    loaded = load_onnx(tmp_path / "out", tmp_path / "out" / "model.onnx")
    for encode in ("encode_query", "encode_document"):
        before, after = getattr(model, encode)(TEXTS), getattr(loaded, encode)(TEXTS)
        assert np.abs(before - after).max() < SAME


def test_the_figures_are_those_of_the_model_before_and_after(exported, beir, bert_model):
    onnx, int8 = (form.figures for form in exported.forms)
    assert [form.form for form in exported.forms] == ["onnx", "int8"]
    assert onnx.before == opera.evaluate(beir, model=bert_model, precision="fp32").measures["nDCG@10"]
    assert int8.low <= int8.difference <= int8.high
    assert int8.after == pytest.approx(int8.before + int8.difference)
    assert exported.forms[1].megabytes < exported.forms[0].megabytes
    assert f"| {100 * onnx.after:.1f} |" in (exported.folder / "README.md").read_text()
    values = json.loads((exported.folder / "export.json").read_text())
    assert values["forms"][0]["figures"]["difference"] == pytest.approx(0, abs=1e-6)
    assert values["queries"] == 16


def test_the_export_names_the_weight_of_keyword_search(exported, bert_model, tmp_path):
    assert exported.keyword_weights == {}  # no run made this model
    write_card(bert_model, "model", tmp_path, replace(exported, keyword_weights={"faq": 0.3}, passages=40))
    card = (tmp_path / "README.md").read_text()
    assert "hybrid search in faq: weight 0.3 for BM25" in card
    assert "split into passages of at most 40 tokens" in card


def test_the_export_of_a_run_has_its_weights_by_the_names_of_the_data_sets(
    train, beir, bert_model, tmp_path, monkeypatch
):
    monkeypatch.setattr("opera.deployment.export.write_onnx", lambda model, file: file.touch())  # which others test
    values = {"max_steps": 1, "per_device_train_batch_size": 4, "refit": False}
    run = train(model=bert_model, passages=20, **values)
    exported = opera.export(run.path, out=tmp_path / "exported", forms=["onnx"], measure=False)
    assert exported.passages == 20
    assert Reference(run.path, Mixture.of(opera.load_data(beir))).passages == 20
    assert exported.keyword_weights == run.record.keywords.weights
    assert exported.keyword_weights.keys() == {beir.name}


def test_export_measures_with_the_prompt_of_the_data(beir, bert_model):
    data = replace(opera.load_data(beir), query_prompt="t3w1 t3w2 t3w1 ")
    with_prompt = opera.evaluate(data, model=bert_model, precision="fp32").measures["nDCG@10"]
    assert with_prompt != opera.evaluate(beir, model=bert_model, precision="fp32").measures["nDCG@10"]
    figures = Reference(str(bert_model), Mixture.of(data)).figures(load_model(bert_model, "cpu"))
    assert figures.before == figures.after == with_prompt


def test_the_folder_is_one_that_older_versions_and_servers_read(exported, bert_model):
    modules = json.loads((exported.folder / "modules.json").read_text())
    assert {module["type"].rpartition(".")[0] for module in modules} == {"sentence_transformers.models"}
    pooling = json.loads((exported.folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] is True
    one, other = (SentenceTransformer(str(folder), device="cpu") for folder in (bert_model, exported.folder))
    assert (one.encode_query(TEXTS) == other.encode_query(TEXTS)).all()


def test_a_static_model_is_distilled_measured_and_described(tmp_path, beir, bert_model):
    pytest.importorskip("skeletoken")
    (form,) = opera.export(bert_model, out=tmp_path / "out", forms=["static"], data=beir).forms
    static = SentenceTransformer(str(tmp_path / "out" / "static"), device="cpu")
    assert type(static[0]).__name__ == "StaticEmbedding"
    assert static.encode(TEXTS).shape == (4, static.get_embedding_dimension())
    again = opera.evaluate(beir, model=tmp_path / "out" / "static").measures["nDCG@10"]
    assert form.figures.after == again
    assert "## Exported by OPERA" in (tmp_path / "out" / "static" / "README.md").read_text()


def test_an_export_is_replaced_only_when_asked_to(tmp_path, bert_model, exported, monkeypatch):
    file = exported.folder / "onnx" / "model.onnx"
    monkeypatch.setattr("opera.deployment.export.write_onnx", lambda model, path: shutil.copyfile(file, path))
    options = {"out": tmp_path / "out", "forms": ["int8"], "measure": False}
    first = opera.export(bert_model, **options)
    assert first.forms[0].figures is None
    assert [path.name for path in (tmp_path / "out" / "onnx").iterdir()] == [Path(first.forms[0].file).name]
    with pytest.raises(opera.RunFolderError, match="holds an export; pass --overwrite"):
        opera.export(bert_model, **options)
    opera.export(bert_model, **{**options, "forms": ["onnx"]}, overwrite=True)
    assert [path.name for path in (tmp_path / "out" / "onnx").iterdir()] == ["model.onnx"]


def test_a_run_is_measured_on_its_own_data(train, bert_model, tmp_path, run_opera, monkeypatch):
    monkeypatch.setattr("opera.deployment.export.write_onnx", lambda model, file: file.touch())  # which others test
    monkeypatch.setattr("opera.deployment.export.load_onnx", lambda folder, file: load_model(folder, "cpu"))
    run = train(model=bert_model, **{**SMALL, "max_steps": 2, "precision": "fp32"})
    run_opera("export", run.path, "--onnx", "--out", tmp_path / "out")
    assert not (tmp_path / "out" / ORIGIN_FILE).exists()
    opera.export(run.model_path, out=tmp_path / "with run", forms=["onnx"], measure=False, keep_run=True)
    assert (tmp_path / "with run" / ORIGIN_FILE).read_bytes() == (run.model_path / ORIGIN_FILE).read_bytes()
    (form,) = json.loads((tmp_path / "out" / "export.json").read_text())["forms"]
    assert form["figures"]["before"] == pytest.approx(run.measures["final"]["nDCG@10"], abs=1e-6)
    assert "| onnx | " in (tmp_path / "out" / "README.md").read_text()


def test_the_matrices_of_lora_are_merged(train, bert_model, tmp_path, monkeypatch):
    monkeypatch.setattr("opera.deployment.export.write_onnx", lambda model, file: file.touch())
    monkeypatch.setattr("opera.deployment.export.load_onnx", lambda folder, file: load_model(folder, "cpu"))
    settings = {**SMALL, "lora": "r=4,merge=false", "learning_rate": 0.05, "guard": False, "precision": "fp32"}
    run = train(model=bert_model, **settings)
    opera.export(run.path, out=tmp_path / "out", forms=["onnx"])
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    trained, plain = (load_model(folder, "cpu").encode(TEXTS) for folder in (run.model_path, tmp_path / "out"))
    assert np.abs(trained - plain).max() < SAME


@pytest.mark.slow
def test_weights_of_more_than_two_gigabytes_stand_beside_the_graph(tmp_path, bert_model, monkeypatch):
    monkeypatch.setattr("opera.deployment.onnx.MOST_IN_ONE_FILE", 100)
    model = load_model(bert_model, "cpu")
    save_portable(model, tmp_path)
    write_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx_data").stat().st_size > (tmp_path / "model.onnx").stat().st_size
    assert foreign_files(tmp_path, MODEL_FILES) == []
    assert b".py" not in (tmp_path / "model.onnx").read_bytes(), "torch notes lines of files of this machine"
    after = load_onnx(tmp_path, tmp_path / "model.onnx").encode(TEXTS)
    assert np.abs(model.encode(TEXTS) - after).max() < SAME
