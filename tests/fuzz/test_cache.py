"""The cache: whatever is done to the files of an entry, what is read from it is what was written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import spoilt, workplace
from opera.core.cache import MANIFEST, cached, damage
from opera.data import load_data
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model

VECTORS = np.arange(40, dtype=np.float32).reshape(8, 5)


def write(folder: Path) -> None:
    np.save(folder / "vectors.npy", VECTORS)


def content_of(name: str) -> bytes:
    with workplace():
        return (cached("vectors", "abc", write) / name).read_bytes()


@pytest.mark.parametrize("name", ["vectors.npy", MANIFEST])
def test_a_spoilt_entry_is_made_anew(name: str) -> None:
    whole = content_of(name)

    @given(spoilt(whole))
    def check(content: bytes) -> None:
        with workplace():
            home = cached("vectors", "abc", write)
            (home / name).write_bytes(content)
            assert np.array_equal(np.load(cached("vectors", "abc", write) / "vectors.npy"), VECTORS)
            assert damage(home) is None

    check()


MOVES: list[Callable[[Path, Path], object]] = [
    lambda one, other: shutil.copy(one, other),
    lambda one, other: one.rename(other),
    lambda one, other: one.unlink(),
    lambda one, other: one.write_bytes(other.read_bytes()[: one.stat().st_size]),
    lambda one, other: (other.unlink(), other.symlink_to(one)),
    lambda one, other: (other.unlink(), other.mkdir()),
]


@given(st.lists(st.tuples(st.sampled_from(MOVES), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=3))
def test_shuffled_files_change_no_embedding(
    world: tuple[Path, Path], moves: list[tuple[Callable, float, float]]
) -> None:
    beir, model = world
    with workplace() as folder:
        encoder = Encoder(load_model(model, "cpu"), show_progress=False)
        expected = np.array(encoder.encode_corpus(load_data(beir)))
        for move, first, second in moves:
            files = [path for path in sorted((folder / "cache").rglob("*")) if path.is_file() and not path.is_symlink()]
            one, other = (files[int(place * (len(files) - 1))] for place in (first, second))
            if one != other:
                move(one, other)
        assert np.array_equal(encoder.encode_corpus(load_data(beir)), expected)


@pytest.fixture(scope="module")
def world(beir: Path, static_model: Path) -> tuple[Path, Path]:
    """Data and a model."""
    return beir, static_model
