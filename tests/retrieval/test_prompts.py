"""Prompts: kept as given, saved, used by role, and missed where a known family's card has one; its pooling."""

import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import opera
from opera.config.recipe import make_recipe, recipe, recipes_by_name
from opera.retrieval.models import load_model
from opera.retrieval.prompts import FAMILIES, family_of, prompt_for, set_prompts


def test_prompts_replace_the_models_own_and_are_saved(bert_model, tmp_path):
    model = load_model(bert_model, "cpu")
    set_prompts(model, "common3 common4 ", "")
    assert (prompt_for(model, "query"), prompt_for(model, "document")) == ("common3 common4 ", "")
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(saved.encode_query("t1w1"), saved.encode("common3 common4 t1w1"))
    assert np.array_equal(saved.encode_document("t1w1"), saved.encode("t1w1"))
    set_prompts(model, None, None)
    assert prompt_for(model, "query") == "common3 common4 ", "None leaves it"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("bge-small-en-v1.5", ["set query_prompt to 'Represent this sentence for searching relevant passages: '"]),
        ("e5-base-v2", ["set query_prompt to 'query: '", "set document_prompt to 'passage: '"]),
        ("Qwen3-Embedding-0.6B", ["set query_prompt to 'Instruct: Given a web search query"]),
        ("bge-m3", []),
    ],
)
def test_a_known_family_without_prompts_gets_a_warning(name, advice, beir, static_model, tmp_path, caplog):
    folder = shutil.copytree(static_model, tmp_path / name)
    opera.search(beir, "t1w1", model=folder)
    warnings = [record.getMessage() for record in caplog.records if "prompt" in record.getMessage()]
    assert all(words in warning for words, warning in zip(advice, warnings, strict=True))
    caplog.clear()
    opera.search(beir, "t1w1", model=folder, query_prompt="", document_prompt="")
    assert "prompt" not in caplog.text, "whoever sets them, even to none, has decided"


def test_recipes_of_models_have_the_prompts_of_their_families():
    names = [name for name in recipes_by_name() if name.startswith("models/")]
    known = {name: family_of(name, None) for name in names}
    assert {name for name, family in known.items() if family is None} == {"models/minilm", "models/static"}
    for name, family in known.items():
        encoding = make_recipe(recipe(name)).train
        prompts = {role: getattr(encoding, f"{role}_prompt") or "" for role in ("query", "document")}
        assert prompts == (family.prompts if family else {"query": "", "document": ""}), name
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
