"""Frozen vectors, and the module that looks them up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from opera.adapter.model import adapter_model
from opera.config.tuning import AdapterSettings
from opera.core.errors import ModelError
from opera.retrieval import frozen
from opera.retrieval.frozen import FrozenVectors, VectorLookup, embed_rows, lookup_of, set_vectors
from opera.retrieval.models import fingerprints, is_static, load_model
from small_runs import unit_vectors


@pytest.fixture
def vectors() -> FrozenVectors:
    rng = np.random.default_rng(0)
    return FrozenVectors(unit_vectors(rng, 9, 6), unit_vectors(rng, 11, 6))


@pytest.fixture
def model(vectors: FrozenVectors) -> SentenceTransformer:
    model = adapter_model(6, AdapterSettings.parse({"adapter": "query"}), seed=0, device="cpu")
    set_vectors(model, vectors)
    with torch.no_grad():
        next(model.parameters()).normal_(generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("task", ["query", "document"])
def test_rows_are_looked_up_by_role(model: SentenceTransformer, vectors: FrozenVectors, task: str) -> None:
    found = model.preprocess(["8", "0", "8"], task=task)["sentence_embedding"]
    np.testing.assert_array_equal(found.numpy(), vectors.of(task)[[8, 0, 8]])
    found[:] = 0
    assert vectors.of(task).all(), "a batch is a copy"


@pytest.mark.parametrize("rows", [None, np.array([3, 1, 3])])
def test_only_the_side_with_parameters_moves(
    model: SentenceTransformer, vectors: FrozenVectors, rows: np.ndarray | None
) -> None:
    wanted = slice(None) if rows is None else rows
    np.testing.assert_array_equal(embed_rows(model, "document", rows), vectors.documents[wanted])
    assert rows is not None or embed_rows(model, "document", rows) is vectors.documents
    moved = embed_rows(model, "query", rows)
    expected = vectors.queries[wanted] @ (np.eye(6) + next(model.parameters()).detach().numpy()).T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(moved, expected, atol=1e-5)  # sums of 6 terms below 10, in float32


def test_chunks_make_no_difference(model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = embed_rows(model, "query", None)
    monkeypatch.setattr(frozen, "CHUNK_ROWS", 4)
    np.testing.assert_allclose(embed_rows(model, "query", None), whole, atol=1e-6)


def test_no_checkpoint_stores_the_vectors(model: SentenceTransformer, tmp_path: Path) -> None:
    assert [tuple(value.shape) for value in model.state_dict().values()] == [(6, 6)]
    model.save_pretrained(str(tmp_path), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)  # our own class
    lookup = lookup_of(loaded)
    assert lookup is not None
    assert lookup.vectors is None
    with pytest.raises(RuntimeError, match="not there yet"):
        loaded.preprocess(["0"], task="query")
    assert isinstance(loaded[1], Router)
    assert torch.equal(next(loaded.parameters()), next(model.parameters()))


def test_it_counts_as_a_table_not_a_transformer(model: SentenceTransformer, static_model: Path) -> None:
    assert is_static(model)
    plain = load_model(static_model, "cpu")
    assert lookup_of(plain) is None
    with pytest.raises(TypeError, match="has no lookup"):
        set_vectors(plain, FrozenVectors(np.empty((0, 6), np.float32), np.empty((0, 6), np.float32)))


def test_the_digest_of_the_vectors_is_part_of_the_fingerprint() -> None:
    models = [SentenceTransformer(modules=[VectorLookup(6, digest)], device="cpu") for digest in ("a", "a", "b")]
    first, same, other = map(fingerprints, models)
    assert first == same != other


def test_an_adapter_that_computes_no_numbers_is_refused(model: SentenceTransformer) -> None:
    with torch.no_grad():
        next(model.parameters())[0, 0] = float("inf")
    with pytest.raises(ModelError, match="query vectors hold values that are no numbers"):
        embed_rows(model, "query", None)
