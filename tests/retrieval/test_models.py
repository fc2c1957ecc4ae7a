"""Loading models and setting them up; a model whose files are not whole is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from opera.core.errors import ModelError, SettingError
from opera.retrieval.models import load_model, set_dropout, set_lengths


def lengths(query: int | None, document: int | None) -> dict[str, int | None]:
    return {"max_query_length": query, "max_passage_length": document}


def test_lengths_cut_in_encoding_and_are_saved(bert_model, tmp_path):
    model = load_model(bert_model, "cpu")
    assert set_lengths(model, lengths(6, 500)) == lengths(6, 64)
    long = " ".join(f"t1w{i % 8}" for i in range(30))
    cut = " ".join(f"t1w{i % 8}" for i in range(3))  # two special tokens and the prompt's one leave three
    assert np.array_equal(model.encode_query(long), model.encode_query(cut)), "the same tokens"
    assert not np.allclose(model.encode_document(long), model.encode_document(cut), atol=1e-3)
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(saved.encode_query(long), model.encode_query(cut))


def test_static_models_have_no_length_to_set(static_model):
    model = load_model(static_model, "cpu")
    assert set_lengths(model, lengths(128, 512)) == lengths(None, None)


def test_dropout_is_set_in_every_layer_and_refused_where_there_is_none(bert_model, static_model):
    model = load_model(bert_model, "cpu")
    model.train()
    set_dropout(model, 0.0)
    features = model.preprocess(["t1w1 t1w2 common3"])
    first, second = (model(dict(features))["sentence_embedding"] for _ in range(2))
    assert torch.equal(first, second)
    static = load_model(static_model, "cpu")
    with pytest.raises(SettingError, match=r"dropout=0\.1: StaticEmbedding has no dropout"):
        set_dropout(static, 0.1)


Weights = dict[str, torch.Tensor]


@pytest.fixture
def bert(bert_model, tmp_path) -> Path:
    return Path(shutil.copytree(bert_model, tmp_path / "bert"))


def change_weights(model: Path, change: Callable[[Weights], Weights]) -> None:
    file = next(model.rglob("model.safetensors"))
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def test_weights_that_are_missing_are_not_made_up(bert):
    change_weights(bert, lambda weights: {n: w for n, w in weights.items() if "layer.0.output" not in n})
    with pytest.raises(ModelError, match="its files lack 4 of"):
        load_model(bert, "cpu")


def test_a_pooler_that_nothing_depends_on_may_be_missing(bert):
    change_weights(bert, lambda weights: {n: w for n, w in weights.items() if "pooler" not in n})
    assert load_model(bert, "cpu").encode_query(["common0"]).shape == (1, 32)


def test_a_tokenizer_without_its_file_is_refused(bert):
    """The library makes one of the special tokens alone, to which all texts of as many words are the same."""
    (bert / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="its tokenizer knows 5 words, but its weights have rows for 121"):
        load_model(bert, "cpu")


@pytest.mark.parametrize("name", ["evil.bin", "../other.safetensors", "/model.safetensors", "absent.safetensors", 7])
def test_an_index_names_weights_of_its_own_folder_only(bert, name):
    file = next(bert.rglob("model.safetensors"))
    names = list(load_file(file))
    shutil.copy(file, bert.parent / "other.safetensors")
    file.rename(file.with_name("evil.bin"))
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, name)}
    file.with_name("model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"index\.json: .*weights must be \.safetensors files in|cannot be loaded"):
        load_model(bert, "cpu")
