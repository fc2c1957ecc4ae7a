"""An adapter of a sentence-transformers model, from training to the folder that users load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import opera
from opera.adapter.model import FrozenVectors, adapter_model, set_vectors
from opera.guard import choice
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import is_static, load_model
from opera.runs.folder import Run
from small_runs import FAST, assert_same_run, unit_vectors

SETTINGS: dict[str, Any] = {**FAST, "learning_rate": 0.02, "adapter": "query"}

USER = """
import json, sys
from sentence_transformers import SentenceTransformer
assert not [name for name in sys.modules if name.split(".")[0] == "opera"]
model = SentenceTransformer(sys.argv[1], device="cpu")
texts = json.loads(sys.argv[2])
print(json.dumps([model.encode_query(texts).tolist(), model.encode_document(texts).tolist()]))
assert not [name for name in sys.modules if name.split(".")[0] == "opera"]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("runs") / "dp", method="dp", **SETTINGS)


@pytest.fixture
def moving() -> tuple[SentenceTransformer, FrozenVectors]:
    """An adapter of queries that moves them, on 9 queries and 11 documents."""
    rng, model = np.random.default_rng(0), adapter_model(6, "query", "cpu")
    vectors = FrozenVectors(unit_vectors(rng, 9, 6), unit_vectors(rng, 11, 6))
    set_vectors(model, vectors)
    with torch.no_grad():
        next(model.parameters()).normal_(generator=torch.Generator().manual_seed(0))
    return model, vectors


def test_only_the_projected_side_moves(moving: tuple[SentenceTransformer, FrozenVectors]) -> None:
    model, vectors = moving
    assert is_static(model)
    rows = ["8", "0", "8"]
    np.testing.assert_array_equal(model.encode_document(rows), vectors.documents[np.array([8, 0, 8])])
    expected = vectors.queries[np.array([8, 0, 8])] @ next(model.parameters()).detach().numpy().T
    np.testing.assert_allclose(model.encode_query(rows), expected, atol=1e-5)  # sums of 6 terms below 10


def test_no_checkpoint_stores_the_vectors(moving: tuple[SentenceTransformer, FrozenVectors], tmp_path: Path) -> None:
    model, _ = moving
    assert [tuple(value.shape) for value in model.state_dict().values()] == [(6, 6)]
    model.save_pretrained(str(tmp_path), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)  # our own class
    assert torch.equal(next(loaded.parameters()), next(model.parameters()))
    with pytest.raises(RuntimeError, match="call set_vectors first"):
        loaded.preprocess(["0"], task="query")


@pytest.mark.slow
def test_the_folder_loads_without_opera(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    """The embeddings of a plain process, and the run's measures, from a transformer with prompts."""
    settings = {**SETTINGS, "max_steps": 20, "guard": False, "precision": "fp32"}
    run = opera.adapt(beir, model=bert_model, out=tmp_path / "run", method="ft", **settings)
    texts = ["t1w1 t1w2", "t2w1"]
    command = [sys.executable, "-c", USER, str(run.model_path), json.dumps(texts)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    queries, documents = (np.array(part) for part in json.loads(done.stdout))
    base = load_model(bert_model, "cpu")
    unchanged = np.asarray(base.encode_document(texts, normalize_embeddings=True))
    assert np.allclose(documents, unchanged, atol=1e-5)
    assert not np.allclose(queries, np.asarray(base.encode_query(texts, normalize_embeddings=True)), atol=1e-3)
    # Encoded again, embeddings differ by rounding; no two scores lie so close here.
    again = opera.evaluate(beir, model=run.path, precision="fp32", measures=FULL_MEASURES)
    assert again.measures == pytest.approx(run.measures["after"])


def test_an_interrupted_run_resumes_to_the_same_bytes(
    finished: Run,
    beir: Path,
    static_model: Path,
    tmp_path: Path,
    interrupted_at: Callable[[int], AbstractContextManager[None]],
) -> None:
    call = {"model": static_model, "out": tmp_path / "run", "method": "dp", **SETTINGS}
    with interrupted_at(30):
        opera.adapt(beir, **call)
    resumed = opera.adapt(beir, resume=True, **call)
    assert matrix(resumed) == matrix(finished)
    assert_same_run(resumed, finished)


def matrix(run: Run) -> bytes:
    return next(run.model_path.rglob("query_0_Dense/model.safetensors")).read_bytes()


def test_the_share_of_the_guard_scales_the_projection(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """λ = 0 keeps the base model; the fine-tuned adapter and the mixture are measured and recorded."""
    settings = {**SETTINGS, "max_steps": 8}
    monkeypatch.setattr(choice, "choose_share", lambda *arguments, **options: 0.0)
    kept = opera.adapt(beir, model=static_model, out=tmp_path / "kept", method="ft", **settings)
    assert kept.record.guard is not None
    assert kept.record.guard.verdict == "kept"
    assert kept.measures["after"] == kept.measures["before"] != kept.measures["fine_tuned"]
    base, final = (SentenceTransformer(str(place), device="cpu") for place in (static_model, kept.model_path))
    assert [type(module) for module in final] == [type(module) for module in base]
    np.testing.assert_array_equal(final.encode_query("t1w1"), base.encode_query("t1w1"))
