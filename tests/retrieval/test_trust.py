"""No model runs code: no pickle does, and no class or file that its folder names. Each attack works where unguarded."""

import json
import re
import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from attacks import change, plant_bomb
from opera.core.errors import ModelError
from opera.retrieval import models, trust
from opera.retrieval.models import load_model
from opera.retrieval.trust import SAFE_LOADING, check_model_folder


@pytest.fixture
def folder(bert_model, tmp_path) -> Path:
    return Path(shutil.copytree(bert_model, tmp_path / "model"))


@pytest.fixture
def mark(tmp_path) -> Path:
    """The folder that an attack makes when it succeeds."""
    return tmp_path / "code-ran"


def test_no_pickle_runs_even_if_the_model_asks_for_it(folder, mark):
    plant_bomb(folder, mark)
    with pytest.raises(ModelError, match=r"_config\.json: 'model_args.weights_only': a model may not set"):
        load_model(folder, "cpu")
    with pytest.raises(Exception, match="Weights only load failed"):
        SentenceTransformer(str(folder), device="cpu", model_kwargs={**SAFE_LOADING, "use_safetensors": False})
    assert not mark.exists()
    with pytest.raises(AttributeError, match="is_floating_point"):  # it has run the pickle and looks for a tensor
        SentenceTransformer(str(folder), device="cpu")
    assert mark.exists(), "the attack works, or this test shows nothing"


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "sentence_transformers.SentenceTransformer",  # would load the folder again, with settings from the folder
        "sentence_transformers.base.model.pickle",
    ],
)
@pytest.mark.parametrize("place", ["modules.json", "router_config.json", "config.json"])
def test_modules_are_those_of_sentence_transformers(folder, mark, name, place):
    (folder / "attack.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    elsewhere = Path(shutil.copytree(folder, folder.parent / "elsewhere"))
    (folder / "1_Router").symlink_to(elsewhere)
    if place == "modules.json":
        (folder / place).write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": name}]))
    else:
        (elsewhere / place).write_text(json.dumps({"types": {"a": name}}))
    with pytest.raises(ModelError, match=rf"{place}: '(types.a|0.type)': the type of a module must be"):
        load_model(folder, "cpu")
    assert not mark.exists()


def test_code_beside_a_configuration_is_not_run(folder, mark):
    (folder / "attack.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nclass Attack: pass\n")
    change(folder / "config.json", auto_map={"AutoConfig": "attack.Attack"}, model_type="attack")
    change(folder / "sentence_bert_config.json", config_args={"trust_remote_code": True}, trust_remote_code=True)
    with pytest.raises(ModelError, match=r"sentence_bert_config\.json: 'trust_remote_code': a model may not set"):
        load_model(folder, "cpu")
    change(folder / "sentence_bert_config.json", trust_remote_code=...)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(folder, "cpu")
    assert not mark.exists()


BERT = "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (BERT, {"model_kwargs": {"allow_all_kernels": True}}, "'model_kwargs.allow_all_kernels': a model may not set"),
        (BERT, {"tokenizer_args": {"subfolder": ".."}}, "'tokenizer_args.subfolder': a model may not set"),
        (BERT, {"tokenizer_name_or_path": "elsewhere"}, "'tokenizer_name_or_path': a model may not set"),
        (BERT, {"modality_config": {"text": {"method": "push_to_hub"}}}, "must be forward or get_..._features"),
        (f"2_Part/{BERT}", {"model_args": {"weights_only": False}}, "a model may not set this argument"),
        ("config.json", {"_attn_implementation": "flash_attention_2"}, "'_attn_implementation': must be eager or sdpa"),
        ("config.json", {"attn_implementation": {"": "sdpa", "text": "a/b"}}, "must be eager or sdpa"),
        ("config.json", {"quantization_config": {"quant_method": "mxfp4"}}, "OPERA cannot load quantised weights"),
        ("adapter_config.json", {"peft_type": "XLORA"}, "must be plain LoRA, got 'XLORA'"),
        ("adapter_config.json", {"peft_type": "LORA", "megatron_config": {"a": 1}}, "must be plain LoRA"),
        ("wordembedding_config.json", {"tokenizer_class": "os.system"}, "must be a tokenizer of sentence_transformers"),
        ("2_Dense/config.json", {"in_features": 8, "activation_function": "my.Activation"}, "a module of torch.nn"),
    ],
)
def test_a_file_does_not_choose_how_it_is_loaded(file, values, message, folder, monkeypatch):
    monkeypatch.setattr(models, "loading_model", None)  # nothing is loaded
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text("{}")
    change(path, **values)
    with pytest.raises(ModelError, match=f"^{re.escape(str(path))}: .*{re.escape(message)}"):
        load_model(folder, "cpu")


def test_what_models_in_use_set_is_allowed(folder):
    arguments = {
        "model_kwargs": {"add_pooling_layer": False, "attn_implementation": "eager", "trust_remote_code": True},
        "tokenizer_args": {"padding_side": "right", "trust_remote_code": True},
        "config_args": {"use_cache": False},
        "max_seq_length": 16,
        "do_lower_case": False,
    }
    change(folder / "sentence_bert_config.json", **arguments)
    change(folder / "config.json", _attn_implementation_autoset=True)
    model = load_model(folder, "cpu")
    assert model.max_seq_length == 16
    assert model[0].auto_model.config._attn_implementation == "eager"


@pytest.mark.parametrize("where", ["a folder", "huggingface_hub's cache"])
def test_the_model_that_an_adapter_names_is_checked_too(where, folder, tmp_path, monkeypatch):
    base = Path(shutil.copytree(folder, tmp_path / "base"))
    change(base / "config.json", attn_implementation="owner/kernel")
    name = str(base) if where == "a folder" else "owner/name"
    monkeypatch.setattr(trust, "try_to_load_from_cache", lambda name, file: str(base / file))
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": name}))
    with pytest.raises(ModelError, match=r"base.config\.json: 'attn_implementation': must be eager or sdpa"):
        check_model_folder(folder)
    (base / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="base_model_name_or_path: must be a whole model"):
        check_model_folder(folder)


def test_nothing_but_data_comes_from_the_hub(bert_model, monkeypatch):
    asked = []

    def download(name: str, allow_patterns: list[str], local_files_only: bool) -> str:
        assert not local_files_only
        asked.append((name, allow_patterns))
        return str(bert_model)

    monkeypatch.setattr(trust, "snapshot_download", download)
    for name in ("somebody/some-model", "all-MiniLM-L6-v2", "bert-base-uncased"):
        load_model(name, "cpu")
    names, patterns = zip(*asked, strict=True)
    assert names == ("somebody/some-model", "sentence-transformers/all-MiniLM-L6-v2", "bert-base-uncased")
    for file in ("modeling.py", "pytorch_model.bin", "model.pt", "model.pkl", "model.onnx"):
        assert not any(Path(file).match(pattern) for pattern in patterns[0])


def test_links_that_lead_back_end_the_walk(folder):
    for name in ("one", "two"):
        (folder / name).symlink_to(".")
    (folder / "1_Pooling" / "up").symlink_to("..")
    check_model_folder(folder)
    change(folder / "config.json", attn_implementation="owner/kernel")
    with pytest.raises(ModelError, match="must be eager or sdpa"):
        check_model_folder(folder)
