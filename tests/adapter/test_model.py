"""An adapter of a sentence-transformers model, from training to the folder that users load."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import opera
from opera.adapter.model import FrozenVectors, adapter_model
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import is_static, load_model
from small_runs import FAST, unit_vectors

SETTINGS = {**FAST, "learning_rate": 0.02, "adapter": "query"}

USER = """
import json, sys
from sentence_transformers import SentenceTransformer
assert not [name for name in sys.modules if name.split(".")[0] == "opera"]
model = SentenceTransformer(sys.argv[1], device="cpu")
texts = json.loads(sys.argv[2])
print(json.dumps([model.encode_query(texts).tolist(), model.encode_document(texts).tolist()]))
assert not [name for name in sys.modules if name.split(".")[0] == "opera"]
"""


@pytest.fixture
def moving() -> tuple[SentenceTransformer, FrozenVectors]:
    """An adapter of queries that moves them, on 9 queries and 11 documents."""
    rng, model = np.random.default_rng(0), adapter_model(6, "query", "cpu")
    vectors = FrozenVectors(query=unit_vectors(rng, 9, 6), document=unit_vectors(rng, 11, 6))
    model[0].vectors = vectors
    with torch.no_grad():
        next(model.parameters()).normal_(generator=torch.Generator().manual_seed(0))
    return model, vectors


def test_only_the_projected_side_moves(moving):
    model, vectors = moving
    assert is_static(model)
    rows = ["8", "0", "8"]
    np.testing.assert_array_equal(model.encode_document(rows), vectors["document"][np.array([8, 0, 8])])
    expected = vectors["query"][np.array([8, 0, 8])] @ next(model.parameters()).detach().numpy().T
    np.testing.assert_allclose(model.encode_query(rows), expected, atol=1e-5)  # sums of 6 terms below 10


def test_no_checkpoint_stores_the_vectors(moving, tmp_path):
    model, _ = moving
    assert [tuple(value.shape) for value in model.state_dict().values()] == [(6, 6)]
    model.save_pretrained(str(tmp_path), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)  # our own class
    assert torch.equal(next(loaded.parameters()), next(model.parameters()))
    assert not loaded[0].vectors


@pytest.mark.slow
def test_the_folder_loads_without_opera(train, beir, bert_model):
    """The embeddings of a plain process, and the run's measures, from a transformer with prompts."""
    settings = {**SETTINGS, "max_steps": 20, "guard": False, "precision": "fp32"}
    run = train(model=bert_model, method="ft", **settings)
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
    assert again.measures == pytest.approx(run.measures["final"])
