"""Encoding, and its cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opera.data import cache_folder, load_data
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_embeddings_are_unit_float32_and_cached(bert_model: Path, beir: Path, precision: str) -> None:
    data = load_data(beir)
    encoder = Encoder(load_model(bert_model, "cpu"), precision, batch_size=16)  # type: ignore[arg-type]
    vectors = encoder.encode_corpus(data)
    assert vectors.dtype == np.float32
    assert vectors.shape == (120, 32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=1e-5)  # 32 float32 terms: 32·2⁻²⁴
    count = len(list((cache_folder() / "vectors").iterdir()))
    again = Encoder(load_model(bert_model, "cpu"), precision).encode_corpus(data)  # type: ignore[arg-type]
    assert np.array_equal(vectors, again)
    assert len(list((cache_folder() / "vectors").iterdir())) == count
    apart = Encoder(load_model(bert_model, "cpu"), precision, batch_size=16, use_cache=False)  # type: ignore[arg-type]
    assert np.array_equal(apart.encode_corpus(data), vectors), "the same batches"
    rows = np.array([3, 1])
    assert np.array_equal(encoder.encode_queries(data, rows), encoder.encode(data.queries.texts(rows), "query"))
