"""A loaded SentenceTransformer at every door: as its folder, and unchanged afterwards."""

import copy
import json
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

import opera
from opera.retrieval.locate import LOADED
from small_runs import SMALL, interrupted_at


@pytest.fixture
def loaded(static_model) -> SentenceTransformer:
    return SentenceTransformer(str(static_model), device="cpu")


def state_of(model: SentenceTransformer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    settings = {"prompts": dict(model.prompts), "similarity": model.similarity_fn_name, "training": model.training}
    return copy.deepcopy(model.state_dict()), settings


def assert_unchanged(model: SentenceTransformer, before: tuple[dict[str, torch.Tensor], dict[str, Any]]) -> None:
    weights, settings = state_of(model)
    assert settings == before[1]
    assert all(torch.equal(weights[name], tensor) for name, tensor in before[0].items())


def test_every_door_takes_a_loaded_model_as_its_folder(beir, static_model, loaded):
    before = state_of(loaded)
    prompt = {"query_prompt": "common1 "}
    measured = [opera.evaluate(beir, model=model, **prompt).measures for model in (loaded, static_model)]
    assert measured[0] == measured[1]
    found = [opera.search(beir, "t1w5", model=model) for model in (loaded, static_model)]
    assert found[0] == found[1]
    for door in (opera.mine, opera.score):
        assert door(beir, model=loaded).equals(door(beir, model=static_model))
    assert opera.inspect(beir, model=loaded).model == LOADED
    assert_unchanged(loaded, before)


def test_a_run_trains_a_copy_and_resumes_with_the_same_weights_only(beir, static_model, loaded, tmp_path):
    before, call = state_of(loaded), {"out": tmp_path / "run", **SMALL, "seed": 3, "method": "ft"}
    with interrupted_at(2):
        opera.adapt(beir, model=loaded, **call)
    other = copy.deepcopy(loaded)
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1
    with pytest.raises(opera.RunFolderError, match="model_fingerprint"):
        opera.adapt(beir, model=other, resume=True, **call)
    run = opera.adapt(beir, model=static_model, resume=True, **call)  # the same weights
    assert run.finished
    assert_unchanged(loaded, before)
    of_folder = opera.adapt(beir, model=static_model, **{**call, "out": tmp_path / "again"})
    assert run.measures == of_folder.measures
    assert opera.evaluate(run.path, model=loaded).measures["nDCG@10"] == run.measures["base"]["nDCG@10"]


def test_the_record_names_the_base_model_of_the_card(beir, static_model, loaded, tmp_path):
    runs = {}
    for base in (None, "someone/base"):
        loaded.model_card_data.base_model = base
        settings = {"method": "ft", "guard": False, "max_steps": 1}
        runs[base] = opera.adapt(beir, model=loaded, out=tmp_path / f"run-{base is None}", **settings)
    assert runs["someone/base"].record.model.source == "someone/base"
    assert "base_model: someone/base" in (runs["someone/base"].model_path / "README.md").read_text()
    name = runs[None].record.model.source
    assert name == LOADED
    with pytest.raises(opera.ModelError, match="save that model with save_pretrained, and pass its folder"):
        opera.evaluate(beir, model=name)


def test_an_export_takes_a_loaded_model(beir, bert_model, tmp_path, monkeypatch):
    model = SentenceTransformer(str(bert_model), device="cpu")
    before = state_of(model)
    with pytest.raises(opera.SettingError, match="is not a run, so OPERA does not know its data; pass --data"):
        opera.export(model, out=tmp_path / "exported", forms=["onnx"])
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    # other tests write real graphs
    monkeypatch.setattr("opera.deployment.export.write_onnx", lambda model, file: file.write_bytes(b"graph"))
    exported = opera.export(model, out=tmp_path / "exported", forms=["onnx"], data=beir, measure=False)
    assert (exported.model, exported.megabytes > 0) == (LOADED, True)
    assert json.loads((tmp_path / "exported" / "export.json").read_text())["model"] == LOADED
    assert_unchanged(model, before)


def test_models_that_no_folder_could_give_are_rejected(beir, static_model, loaded, tmp_path):
    class Mine(torch.nn.Identity):
        pass

    custom = SentenceTransformer(modules=[*loaded, Mine()], device="cpu")
    with pytest.raises(opera.ModelError, match=r"with modules of sentence_transformers only, got .*\.Mine in torch"):
        opera.evaluate(beir, model=custom)
    with pytest.raises(opera.SettingError, match=r"^the runs of a grid .*save_pretrained"):
        opera.compare(beir, model=loaded, out=tmp_path / "grid")
    assert not list(tmp_path.iterdir())
