"""Loading models, setting them up, and their fingerprints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from opera.core.errors import SettingError
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import fingerprint, load_model, set_dropout, set_lengths


def lengths(query: int | None, document: int | None) -> dict[str, int | None]:
    return {"max_query_length": query, "max_passage_length": document}


def test_lengths_cut_in_encoding_and_are_saved(bert_model: Path, tmp_path: Path) -> None:
    model = load_model(bert_model, "cpu")
    assert set_lengths(model, lengths(6, 500)) == lengths(6, 64)
    long = " ".join(f"t1w{i % 8}" for i in range(30))
    cut = " ".join(f"t1w{i % 8}" for i in range(3))  # two special tokens and the prompt's one leave three
    assert np.array_equal(model.encode_query(long), model.encode_query(cut)), "the same tokens"
    assert not np.allclose(model.encode_document(long), model.encode_document(cut), atol=1e-3)
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(saved.encode_query(long), model.encode_query(cut))


def test_static_models_have_no_length_to_set(static_model: Path) -> None:
    model = load_model(static_model, "cpu")
    assert set_lengths(model, lengths(128, 512)) == lengths(None, None)
    with pytest.raises(SettingError, match="max_query_length: StaticEmbedding reads whole texts"):
        set_lengths(model, lengths(10, 512), {"max_query_length"})


@pytest.mark.parametrize("setting", [{"truncation_side": "left"}, {"split_special_tokens": True}])
def test_fingerprints_know_how_texts_are_cut(bert_model: Path, setting: dict[str, object]) -> None:
    """The tokenizer's own file does not say it, and cached embeddings of the same weights would stand for these."""
    model = load_model(bert_model, "cpu")
    before = fingerprint(model)
    for name, value in setting.items():
        setattr(model[0].tokenizer, name, value)
    assert fingerprint(model) != before


def test_fingerprints_tell_models_apart(bert_model: Path) -> None:
    first, second = (load_model(bert_model, "cpu") for _ in range(2))
    assert Encoder(first).fingerprint == Encoder(second).fingerprint
    set_lengths(second, lengths(5, 60))
    assert Encoder(first).fingerprint != Encoder(second).fingerprint
    set_lengths(second, lengths(None, None))
    second.prompts["query"] = "another: "
    assert Encoder(first).fingerprint != Encoder(second).fingerprint
    with torch.no_grad():
        next(second.parameters())[0] += 1
    assert fingerprint(first) != fingerprint(second)


def test_dropout(bert_model: Path, static_model: Path) -> None:
    model = load_model(bert_model, "cpu")
    model.train()
    set_dropout(model, 0.0)
    features = model.preprocess(["t1w1 t1w2 common3"])
    first, second = (model(dict(features))["sentence_embedding"] for _ in range(2))
    assert torch.equal(first, second)
    static = load_model(static_model, "cpu")
    with pytest.raises(SettingError, match=r"dropout=0\.1: StaticEmbedding has no dropout"):
        set_dropout(static, 0.1)
