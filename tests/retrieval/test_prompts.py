"""Prompts: kept as given, saved, used by role, and missed where a known family's card has one; its pooling."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import opera
from backbones import write_backbone
from opera.config.recipe import make_recipe, recipe, recipes_by_name
from opera.core.errors import ModelError, SettingError
from opera.data import load_data
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.models import load_model, set_lengths
from opera.retrieval.prompts import (
    FAMILIES,
    family_of,
    prompt_for,
    set_prompts,
)


def test_prompts_replace_the_models_own_and_are_saved(bert_model: Path, tmp_path: Path) -> None:
    model = load_model(bert_model, "cpu")
    set_prompts(model, "common3 common4 ", "")
    assert (prompt_for(model, "query"), prompt_for(model, "document")) == ("common3 common4 ", "")
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(saved.encode_query("t1w1"), saved.encode("common3 common4 t1w1"))
    assert np.array_equal(saved.encode_document("t1w1"), saved.encode("t1w1"))
    set_prompts(model, None, None)
    assert prompt_for(model, "query") == "common3 common4 ", "None leaves it"


def test_a_prompt_must_leave_room_for_the_text(bert_model: Path) -> None:
    model = load_model(bert_model, "cpu")
    set_lengths(model, {"max_query_length": 6, "max_passage_length": 500})
    set_prompts(model, "common1 " * 3, None)
    with pytest.raises(SettingError, match="query_prompt: has 6 tokens, and max_query_length=6 leaves no room"):
        set_prompts(model, "common1 " * 4, None)
    with pytest.raises(SettingError, match="document_prompt: has 64 tokens, and max_passage_length=64 leaves no room"):
        set_prompts(model, "", "common1 " * 100)


def test_another_prompt_for_queries_leaves_documents_in_the_cache(
    beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path))
    data, roles = load_data(beir), []
    embed = Encoder._vectors
    monkeypatch.setattr(Encoder, "_vectors", lambda *given: (roles.append(given[1].task), embed(*given))[1])
    rankings = []
    for prompt in ("", "common1 common2 ", ""):
        encoder = open_encoder(static_model, query_prompt=prompt)
        rankings.append(opera.evaluate(data, model=static_model, query_prompt=prompt).ranking.scores)
        assert encoder.prompts == {"query": prompt, "document": ""}
    assert roles == ["query", "document", "query"], "the third finds all in the cache"
    assert np.array_equal(rankings[0], rankings[2])
    assert not np.array_equal(rankings[0], rankings[1])


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("bge-small-en-v1.5", ["set query_prompt to 'Represent this sentence for searching relevant passages: '"]),
        ("e5-base-v2", ["set query_prompt to 'query: '", "set document_prompt to 'passage: '"]),
        ("Qwen3-Embedding-0.6B", ["set query_prompt to 'Instruct: Given a web search query"]),
        ("bge-m3", []),
        ("gte-base", []),
        ("my-model", []),
    ],
)
def test_a_known_family_without_prompts_gets_a_warning(
    name: str, advice: list[str], beir: Path, static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(static_model, tmp_path / name)
    for _ in range(2):  # each is warned of once
        opera.search(beir, "t1w1", model=folder)
    records = [record for record in caplog.records if "prompt" in record.getMessage()]
    warnings = [record.getMessage() for record in records if record.levelname == "WARNING"]
    assert len(warnings) == len(records) == len(advice)
    assert all(words in warning for words, warning in zip(advice, warnings, strict=True))
    caplog.clear()
    with caplog.at_level("INFO", logger="opera"):
        opera.search(beir, "t1w1", model=folder, query_prompt="", document_prompt="")
        opera.search(beir, "t1w1", model=folder, query_prompt="common1 ", document_prompt="common2 ")
    assert "prompt" not in caplog.text, "whoever sets them, even to none, has decided"


def test_a_prompt_of_another_name_is_not_used_and_that_is_said(
    beir: Path, static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """sentence-transformers reads the prompt 'document' first, which every model has, if only an empty one."""
    model = load_model(static_model, "cpu")
    model.prompts["passage"] = "common2 "
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    with caplog.at_level("INFO", logger="opera"):
        encoder = open_encoder(tmp_path / "model")
    assert encoder.prompts["document"] == ""
    assert "the prompt 'passage', which sentence-transformers does not use for a document" in caplog.text
    assert "set document_prompt to 'common2 '" in caplog.text


def test_recipes_of_models_have_the_prompts_of_their_families() -> None:
    names = [name for name in recipes_by_name() if name.startswith("models/")]
    known = {name: family_of(name, None) for name in names}
    assert {name for name, family in known.items() if family is None} == {"models/minilm", "models/static"}
    for name, family in known.items():
        encoding = make_recipe(recipe(name)).train
        prompts = {role: getattr(encoding, f"{role}_prompt") or "" for role in ("query", "document")}
        assert prompts == (family.prompts if family else {"query": "", "document": ""}), name
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def plain_folder(backbone: str, folder: Path) -> Path:
    """Write a backbone as a folder of transformers alone, which has no modules.json."""
    return write_backbone(backbone, folder.with_name("whole")).with_name("plain").rename(folder)


@pytest.mark.parametrize(
    ("backbone", "name", "family", "pooling"),
    [("bge", "bge-small-en-v1.5", "bge-en", "cls"), ("qwen3", "Qwen3-Embedding-0.6B", "Qwen3-Embedding", "lasttoken")],
)
def test_a_family_that_is_pooled_otherwise_than_guessed_is_refused(
    backbone: str, name: str, family: str, pooling: str, tmp_path: Path
) -> None:
    folder = plain_folder(backbone, tmp_path / name)
    with pytest.raises(ModelError) as caught:
        load_model(folder, "cpu")
    assert str(caught.value).startswith(f"{folder}: has no modules.json, which says how tokens are pooled")
    assert f"takes mean, and models of the family {family} need {pooling}" in str(caught.value)
