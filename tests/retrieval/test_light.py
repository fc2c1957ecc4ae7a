"""One query over a kept index, without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.core.cache import cache_folder
from opera.data import TextTable
from opera.encoder.embeddings import Embeddings
from opera.retrieval.light import StaticModel, nearest
from opera.retrieval.nearest import exact_search
from opera.retrieval.one_query import FoundDocument

QUERIES = ("t1w1 t1w2", "t2w1", "t3w3 t4w1 common1", "t5w2 nowhere")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path / "cache"))
    return cache_folder()


def kept(beir: Path, model: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> list[FoundDocument]:
    """Search where no model can be loaded."""
    with monkeypatch.context() as patch:
        patch.setattr("opera.retrieval.encoder.load_model", None)
        return opera.search(beir, query, model=model, top=20)


@pytest.mark.parametrize("depth", [1, 7, 90])
def test_documents_and_ties_are_those_of_exact_search(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.retrieval.light.TILE_ROWS", 16)
    rng = np.random.default_rng(depth)
    ids = [f"{number:02d}" for number in rng.permutation(90)]
    documents = TextTable.from_texts(dict.fromkeys(ids, "x"))
    for high in (2, 1000):  # few values tie
        vectors = rng.integers(-1, high, size=(90, 5)).astype(np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
        query = vectors[3]
        rows, scores = nearest(query, Embeddings.of(vectors), documents.id_rank, depth)
        expected = exact_search(query[None], vectors, documents, depth)
        assert np.array_equal(rows, expected.doc_rows[0])
        assert np.array_equal(np.float32(scores), expected.scores[0])


@pytest.mark.usefixtures("cache")
def test_a_kept_index_gives_what_the_first_search_gave(
    beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {}
    for query in QUERIES:
        shutil.rmtree(cache_folder(), ignore_errors=True)
        first[query] = opera.search(beir, query, model=static_model, top=20)


@pytest.mark.usefixtures("cache")
def test_a_kept_index_needs_no_large_library(beir: Path, static_model: Path) -> None:
    opera.search(beir, "t1w1", model=static_model)
    code = (
        f"import sys, opera\nassert len(opera.search({str(beir)!r}, 't2w1', model={str(static_model)!r})) == 5\n"
        "large = {'torch', 'transformers', 'sentence_transformers', 'numba', 'pandas', 'scipy', 'sklearn'}\n"
        "assert not large & set(sys.modules), large & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_decides_an_embedding_decides_which_index_is_opened(
    beir: Path, static_model: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change to the model, a prompt or the index takes the long way, which cannot be gone here."""
    model = tmp_path / "model"
    shutil.copytree(static_model, model)
    opera.search(beir, "t1w1", model=model)
    assert kept(beir, model, "t1w1", monkeypatch)
    monkeypatch.setattr("opera.retrieval.encoder.load_model", _refuse)
    with pytest.raises(LookupError):
        opera.search(beir, "t1w1", model=model, query_prompt="common1 ")
    (model / "README.md").write_text("new")
    with pytest.raises(LookupError):
        opera.search(beir, "t1w1", model=model)
    (model / "README.md").unlink()
    assert opera.search(beir, "t1w1", model=model)
    monkeypatch.setenv("OPERA_REPRODUCIBLE", "1")
    with pytest.raises(LookupError):
        opera.search(beir, "t1w1", model=model)
    monkeypatch.delenv("OPERA_REPRODUCIBLE")
    for shard in (cache / "vectors").glob("*/*.npy"):
        shard.write_bytes(b"damaged")
    with pytest.raises(LookupError):
        opera.search(beir, "t1w1", model=model)


def _refuse(*arguments: object) -> None:
    raise LookupError


def test_a_query_prompt_stands_before_a_query_of_a_kept_index(
    beir: Path, static_model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opera.search(beir, "t1w1", model=static_model, query_prompt="t2w1 ")
    monkeypatch.setattr("opera.retrieval.encoder.load_model", _refuse)
    assert opera.search(beir, "t1w1", model=static_model, query_prompt="t2w1 ") == first
    assert len(list((cache / "kept_indexes").iterdir())) == 1


def test_other_models_take_the_long_way(static_model: Path, bert_model: Path, tmp_path: Path) -> None:
    assert StaticModel.of(static_model) is not None
    assert StaticModel.of(bert_model) is None
    assert StaticModel.of("owner/name") is None
    linked = tmp_path / "linked"
    shutil.copytree(static_model, linked)
    (linked / "model.safetensors").unlink()
    (linked / "model.safetensors").symlink_to(static_model / "model.safetensors")
    assert StaticModel.of(linked) is None
    (linked / "modules.json").write_text("[1]")
    assert StaticModel.of(linked) is None


def test_a_text_that_a_model_cannot_embed_has_no_embedding(static_model: Path, tmp_path: Path) -> None:
    """A tokenizer of whole words without an unknown token fails at other words; ids may lie beyond the table."""
    model = tmp_path / "model"
    shutil.copytree(static_model, model)
    static, path = StaticModel.of(model), model / "tokenizer.json"
    assert static is not None
    assert static.embed("unheard") is not None
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["unk_token"] = "[GONE]"
    tokenizer["model"]["vocab"]["beyond"] = 10**6
    path.write_text(json.dumps(tokenizer))
    assert static.embed("t1w1") is not None
    assert static.embed("unheard") is None
    assert static.embed("beyond") is None


def test_a_model_that_the_two_ways_embed_differently_is_searched_by_torch(
    beir: Path, static_model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [document.id for document in opera.search(beir, "t1w1", model=static_model)]
    shutil.rmtree(cache)
    monkeypatch.setattr(StaticModel, "embed", lambda self, text: np.zeros(24, dtype=np.float32))
    assert [document.id for document in opera.search(beir, "t1w1", model=static_model)] == expected
    assert not (cache / "kept_indexes").exists()
