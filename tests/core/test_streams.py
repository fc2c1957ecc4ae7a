"""Streams for compiled loops give the numbers of NumPy's generators, bit by bit."""

import numpy as np
import pytest

from opera.core.rng import generator
from opera.core.streams import Stream, below, uniform

PLACES = [(0, "a", 0), (1, "dp.queries", 7), (2**32 - 1, "negatives", 2**32 - 1), (42, "ö", 123_456)]


@pytest.mark.parametrize("place", PLACES)
def test_the_stream_is_that_of_the_generator(place: tuple[int, str, int]) -> None:
    """Seeded alike, integers and uniform numbers by turns are equal, and so is a generator taken from the middle."""
    stream, rng = Stream(*place), generator(*place)
    for high in (1, 2, 3, 1000, 5_000_001, 2**31 + 1, 2**32 - 1, 2**32):
        assert np.array_equal(stream.integers(high, 50), rng.integers(high, size=50))
        assert [below(high, stream.state) for _ in range(3)] == [rng.integers(0, high) for _ in range(3)]
        assert [uniform(stream.state) for _ in range(5)] == rng.random(5).tolist()
    taken = stream.generator()
    assert np.array_equal(taken.permutation(100), rng.permutation(100))
    stream.go_on_after(taken)
    assert np.array_equal(stream.integers(77, 9), rng.integers(77, size=9))


def test_bounds_near_two_to_the_32_reject_numbers() -> None:
    """About a half of the numbers is rejected for a bound just above 2³¹, so that the rejection is seen."""
    stream, rng = Stream(3, "b", 1), generator(3, "b", 1)
    assert np.array_equal(stream.integers(2**31 + 1, 1000), rng.integers(2**31 + 1, size=1000))
    assert not np.array_equal(stream.state[:2], Stream(3, "b", 1).state[:2])
