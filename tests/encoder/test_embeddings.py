"""Shards read as one array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.encoder.embeddings import LEAST_ROWS, MOST_ROWS, SHARDS, Embeddings, Shards


@given(st.integers(0, 50_000_000))
def test_shards_hold_every_row_and_suit_the_table(count: int) -> None:
    shards = Shards.of(count)
    assert LEAST_ROWS <= shards.size <= MOST_ROWS
    assert 65_536 % shards.size == 0
    first, last = shards.rows(0), shards.rows(len(shards) - 1)
    assert (first.start, last.stop) == (0, count)
    assert last.stop > last.start or count == 0
    assert len(shards) >= SHARDS // 2 or shards.size == LEAST_ROWS
    assert len(set(shards.names(".npy"))) == len(shards)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
def test_shards_are_read_as_one_array(count: int, tmp_path: Path) -> None:
    shards = Shards(count, 8)
    whole = np.random.default_rng(1).standard_normal((count, 3)).astype(np.float32)
    for number, name in enumerate(shards.names(".npy")):
        np.save(tmp_path / name, whole[shards.rows(number)])
    expected = whole
    for found in (Embeddings.open(tmp_path, shards), Embeddings.of(expected)):
        assert (found.shape, len(found), found.dimension) == ((count, 3), count, 3)
        assert np.array_equal(np.asarray(found), expected)
        for start in range(count + 1):
            for stop in range(start, count + 1):
                assert np.array_equal(found[start:stop], expected[start:stop])
        assert np.array_equal(found[::-2], expected[::-2])
        rows = np.random.default_rng(2).integers(-count, count, size=(4, 5)) if count else np.empty((0, 2), int)
        assert np.array_equal(found[rows], expected[rows])
        assert np.array_equal(found[np.arange(count) % 2 == 0], expected[::2])
        assert {found[rows].dtype, found[:].dtype, np.asarray(found).dtype} == {np.dtype(np.float32)}
        for bad in (count, -count - 1):
            with pytest.raises(IndexError):
                found.rows(np.array([bad]))
