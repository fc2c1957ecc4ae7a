"""Encoding, and its cache."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.core.errors import ModelError
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


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-40:] = bytes(255 - byte for byte in content[-40:])
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["vectors", "rankings", "data"])
@pytest.mark.parametrize("how", ["changed", "shortened", "emptied", "removed"])
def test_damage_to_the_cache_changes_no_figure(
    kind: str,
    how: str,
    static_model: Path,
    beir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path))
    expected = opera.evaluate(beir, model=static_model).measures
    if kind == "vectors":  # else they are not read
        shutil.rmtree(tmp_path / "rankings")
    files = [path for path in (tmp_path / kind).rglob("*") if path.is_file()]
    harm = {
        "changed": _damage,
        "shortened": lambda path: os.truncate(path, path.stat().st_size - 8),
        "emptied": lambda path: os.truncate(path, 0),
        "removed": Path.unlink,
    }
    for path in files:
        harm[how](path)
    assert files
    assert opera.evaluate(beir, model=static_model).measures == expected
    assert sum("making it anew" in message for message in caplog.messages) == len({path.parent for path in files})
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_parts_of_a_corpus_are_the_rows_of_the_whole(batch_size: int, bert_model: Path, beir: Path) -> None:
    """Also where the range cuts the 32 or 96 texts that the model is called with."""
    data, encoder = load_data(beir), Encoder(load_model(bert_model, "cpu"), batch_size=batch_size, use_cache=False)
    whole = encoder.encode_corpus(data)
    for start, stop in ((0, 120), (0, 40), (40, 80), (31, 97), (119, 120), (50, 50), (120, 120)):
        parts = list(encoder.document_parts(data, "title_text", slice(start, stop)))
        assert np.array_equal(np.concatenate([whole[:0], *parts]), whole[start:stop])


def test_a_model_that_computes_no_numbers_is_refused(static_model: Path, beir: Path) -> None:
    model = load_model(static_model, "cpu")
    model[0].embedding.weight.data[:] = float("nan")
    with pytest.raises(ModelError, match=r"embedding of the document '.* holds values that are no numbers \(120 of"):
        Encoder(model).encode_corpus(load_data(beir))
