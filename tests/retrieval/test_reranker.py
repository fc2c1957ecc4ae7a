"""Rerankers: loaded as carefully as models, their scores those of the library, cached, and safe from memory's end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from backbones import write_backbone, write_reranker
from opera.core.errors import ModelError, TrainingError
from opera.data import load_data
from opera.retrieval.reranker import open_reranker

FULL = {"precision": "fp32"}


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory) -> Path:
    return write_reranker(tmp_path_factory.mktemp("reranker") / "model")


def test_scores_are_the_librarys_logits(beir, cross_encoder):
    data = load_data(beir)
    queries, documents = np.array([0, 3, 3, 5]), np.array([7, 0, 9, 7])
    texts = list(zip(data.queries.texts(queries), data.corpus.texts(documents), strict=True))
    expected = CrossEncoder(str(cross_encoder), device="cpu").predict(texts, activation_fn=lambda scores: scores)
    scores = open_reranker(cross_encoder, **FULL).score_pairs(data, queries, documents)
    # Sums of a 16-wide layer in another order, of padded batches: 16 terms below 10, 160·2⁻²³ = 2e-5.
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-5)
    assert len(set(scores.tolist())) == 4


def test_prompts_and_lengths_decide_scores(cross_encoder):
    texts = ["t1w5 common1"], ["t1w2 t3w3 " * 12]
    plain = open_reranker(cross_encoder, **FULL).score(*texts)
    prompted = open_reranker(cross_encoder, "common2 ", "common3 ", **FULL)
    assert prompted.score(["t1w5 common1"], texts[1]) != plain
    by_hand = open_reranker(cross_encoder, **FULL).score(["common2 t1w5 common1"], ["common3 " + texts[1][0]])
    assert prompted.score(*texts) == by_hand
    short = open_reranker(cross_encoder, max_length=12, **FULL)
    assert short.score(*texts) != plain
    assert len({one.fingerprint for one in (prompted, short, open_reranker(cross_encoder, **FULL))}) == 3


def test_the_batch_shrinks_where_memory_runs_out(cross_encoder, monkeypatch):
    reranker = open_reranker(cross_encoder, **FULL)
    predict, sizes = reranker.model.predict, []

    def short_of_memory(texts: Any, batch_size: int, **options: Any) -> Any:
        sizes.append(batch_size)
        if batch_size > most:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1 TiB")
        return predict(texts, batch_size=batch_size, **options)

    monkeypatch.setattr(reranker.model, "predict", short_of_memory)
    most = 16
    for _ in range(2):
        assert len(reranker.score(["common1"] * 3, ["common2"] * 3)) == 3
    assert sizes == [64, 32, 16, 16]
    most = 0
    with pytest.raises(TrainingError, match="out of memory while a reranker reads one pair"):
        reranker.score(["common1"], ["common2"])


def test_what_is_no_reranker_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is not a reranker: its files lack the weights 'classifier"):
        open_reranker(write_backbone("bge", tmp_path / "bge"))
