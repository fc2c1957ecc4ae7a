"""Well-known models: recognised by name or configuration, and refused where nothing says how they are pooled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backbones import write_backbone
from opera.config.recipe import make_recipe
from opera.config.recipe_files import read_recipes, recipe_names
from opera.core.errors import ModelError
from opera.retrieval.models import load_model
from opera.retrieval.prompts import FAMILIES, family_of


@pytest.mark.parametrize(
    ("spec", "family"),
    [
        ("BAAI/bge-large-en-v1.5", "bge-en"),
        ("/models/bge-base-en", "bge-en"),
        ("BAAI/bge-large-zh-v1.5", "bge-zh"),
        ("BAAI/bge-m3", "bge-m3"),
        ("intfloat/e5-small-v2", "e5"),
        ("intfloat/multilingual-e5-base", "e5"),
        ("intfloat/multilingual-e5-large-instruct", "multilingual-e5-instruct"),
        ("intfloat/e5-mistral-7b-instruct", "e5-mistral"),
        ("thenlper/gte-base", "gte"),
        ("Alibaba-NLP/gte-Qwen2-1.5B-instruct", "gte-Qwen2"),
        ("Qwen/Qwen3-Embedding-0.6B", "Qwen3-Embedding"),
        ("Snowflake/snowflake-arctic-embed-m", "arctic-embed"),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "arctic-embed-v2"),
        ("nomic-ai/nomic-embed-text-v1.5", "nomic-embed"),
        ("mixedbread-ai/mxbai-embed-large-v1", "mxbai-embed"),
        ("/hub/models--BAAI--bge-small-en-v1.5/snapshots/0123abcd", "bge-en"),
        ("minilm", None),
        ("runs/e5/model", None),
        ("Qwen/Qwen3-0.6B", None),
        ("mye5-base", None),
    ],
)
def test_families_are_known_by_name(spec: str, family: str | None) -> None:
    found = family_of(spec, None)
    assert (found and found.name) == family


def test_families_are_known_by_what_the_configuration_says(tmp_path: Path) -> None:
    for config, family in (
        ('{"_name_or_path": "/anywhere/sentence_transformers/BAAI_bge-large-en/"}', "bge-en"),
        ('{"model_type": "nomic_bert"}', "nomic-embed"),
        ('{"model_type": "bert"}', None),
        ("[]", None),
        ("{", None),
    ):
        (tmp_path / "config.json").write_text(config)
        found = family_of(str(tmp_path), tmp_path)
        assert (found and found.name) == family, config


def test_recipes_of_models_have_the_prompts_of_their_families() -> None:
    names = [name for name in recipe_names() if name.startswith("models/")]
    known = {name: family_of(name, None) for name in names}
    assert {name for name, family in known.items() if family is None} == {"models/minilm", "models/static"}
    for name, family in known.items():
        encoding = make_recipe(read_recipes([name])).train
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


def test_a_guess_that_is_right_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last token of a causal language model, which is what the makers' files say Qwen3-Embedding is; e5's mean."""
    folder = plain_folder("qwen3", tmp_path / "Qwen3-Embedding-0.6B")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3ForCausalLM"]}))
    with caplog.at_level("INFO", logger="opera"):
        assert load_model(folder, "cpu")[1].pooling_mode == "lasttoken"
        assert load_model(plain_folder("e5", tmp_path / "e5-small"), "cpu")[1].pooling_mode == "mean"
    assert not caplog.text


def test_a_guess_for_an_unknown_model_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = plain_folder("bge", tmp_path / "my-model")
    with caplog.at_level("INFO", logger="opera"):
        load_model(folder, "cpu")
    assert f"note: {folder}: has no modules.json, so its tokens are pooled by mean" in caplog.text
