"""Encoding, its cache, and shards read as one array."""

from typing import Any

import numpy as np
import pytest

from backbones import write_backbone
from opera.data import cache_folder, load_data
from opera.identity import model as identity
from opera.retrieval import vectors as vector_files
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model
from opera.retrieval.vectors import LEAST_ROWS, MOST_ROWS, SHARDS, Embeddings, Shards


@pytest.fixture
def four_shards(monkeypatch) -> None:
    """Cut the 120 documents into shards of 32."""
    monkeypatch.setattr(vector_files, "LEAST_ROWS", 32)


@pytest.mark.usefixtures("four_shards")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_embeddings_are_unit_float32_and_cached(bert_model, beir, precision, monkeypatch):
    data = load_data(beir)
    encoder = Encoder(load_model(bert_model, "cpu"), precision, batch_size=1)
    vectors = encoder.encode_corpus(data).rows
    assert vectors[:].dtype == np.float32
    assert vectors.shape == (120, 32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=1e-5)  # 32 float32 terms: 32·2⁻²⁴
    count = len(list((cache_folder() / "vectors").iterdir()))
    again = Encoder(load_model(bert_model, "cpu"), precision).encode_corpus(data).rows
    assert np.array_equal(vectors, again)
    assert len(list((cache_folder() / "vectors").iterdir())) == count
    monkeypatch.setattr(identity, "LAYOUT", "of another version")
    Encoder(load_model(bert_model, "cpu"), precision).encode_corpus(data)
    assert len(list((cache_folder() / "vectors").iterdir())) == count + 1
    apart = Encoder(load_model(bert_model, "cpu"), precision, batch_size=1, use_cache=False)
    assert np.array_equal(apart.encode_corpus(data).rows, vectors), "the same batches"
    rows = np.array([3, 1])
    assert np.array_equal(encoder.encode_queries(data, rows), encoder.encode(data.queries.texts(rows), "query"))
    assert encoder.encode_queries(data, rows[:0]).shape == (0, 32)


@pytest.mark.parametrize("kind", ["bert", "static", "bge", "bge-m3", "e5", "qwen3"])
def test_embeddings_are_those_of_sentence_transformers(kind, request, beir, tmp_path):
    """Batches are others, so sums go in another order: 16 terms or 32 in two layers, 2⁻²⁴ each, and softmax."""
    if kind in ("bert", "static"):
        folder = request.getfixturevalue(f"{kind}_model")
    else:
        folder = write_backbone(kind, tmp_path / "model")
    data, model = load_data(beir), load_model(folder, "cpu")
    if hasattr(model[0], "query_length"):
        model[0].query_length, model[0].document_length = 7, 12
    encoder = Encoder(model, "fp32", use_cache=False)
    rows, expected = np.arange(len(data.queries)), load_model(folder, "cpu")
    if hasattr(model[0], "query_length"):
        expected[0].query_length, expected[0].document_length = 7, 12
    for vectors, plain in (
        (encoder.encode_corpus(data).rows, expected.encode_document(data.corpus.texts(), normalize_embeddings=True)),
        (encoder.encode_queries(data, rows), expected.encode_query(data.queries.texts(), normalize_embeddings=True)),
    ):
        np.testing.assert_allclose(vectors, plain, rtol=0, atol=2e-6)


@pytest.mark.usefixtures("four_shards")
def test_an_encoding_that_is_cut_off_goes_on_with_what_is_missing(bert_model, beir, tmp_path, monkeypatch):
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path))
    data, embed, encoded = load_data(beir), Encoder._vectors, list[int]()

    def cut(self: Encoder, source: Any, rows: np.ndarray, *rest: Any) -> np.ndarray:
        encoded.append(int(rows[0]))
        if len(encoded) == 3:
            raise KeyboardInterrupt
        return embed(self, source, rows, *rest)

    monkeypatch.setattr(Encoder, "_vectors", cut)
    with pytest.raises(KeyboardInterrupt):
        Encoder(load_model(bert_model, "cpu")).encode_corpus(data)
    Encoder(load_model(bert_model, "cpu")).encode_corpus(data)
    assert encoded == [0, 32, 64, 64, 96]
    assert not list(tmp_path.rglob(".*"))


def test_a_model_that_truncates_its_embeddings(bert_model):
    model = load_model(bert_model, "cpu")
    full = Encoder(model).encode(["t1w1 common3"], "query")
    model.truncate_dim = 16
    cut = Encoder(model).encode(["t1w1 common3"], "query")
    assert cut.shape == (1, 16)
    np.testing.assert_allclose(cut, full[:, :16] / np.linalg.norm(full[:, :16]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 512, 513, 16_384, 16_385, 524_288, 524_289, 50_000_000])
def test_shards_hold_every_row_and_suit_the_table(count):
    shards = Shards.of(count)
    assert LEAST_ROWS <= shards.size <= MOST_ROWS
    first, last = shards.rows(0), shards.rows(len(shards) - 1)
    assert (first.start, last.stop) == (0, count)
    assert last.stop > last.start or count == 0
    assert len(shards) >= SHARDS // 2 or shards.size == LEAST_ROWS
    assert len(set(shards.names())) == len(shards)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
def test_shards_are_read_as_one_array(count, tmp_path):
    shards = Shards(count, 8)
    vectors = np.random.default_rng(1).standard_normal((count, 3)).astype(np.float32)
    for number, name in enumerate(shards.names()):
        np.save(tmp_path / name, vectors[shards.rows(number)])
    embeddings = Embeddings(tmp_path, shards)
    assert (embeddings.shape, len(embeddings), embeddings[:].dtype) == ((count, 3), count, np.float32)
    for part in (slice(None), slice(1, 9), slice(7, 8), slice(None, None, -2)):
        assert np.array_equal(embeddings[part], vectors[part])
    rows = np.random.default_rng(2).integers(count, size=(4, 5)) if count else np.empty((0, 2), int)
    assert np.array_equal(embeddings[rows], vectors[rows])
