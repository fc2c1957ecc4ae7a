"""Shards read as one array."""

import numpy as np
import pytest

from opera.retrieval.vectors import LEAST_ROWS, MOST_ROWS, SHARDS, Embeddings, Shards


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
