"""The sorted multiset against NumPy's sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.methods._order_statistics.sorted_values import SortedValues


@given(
    st.lists(st.integers(-4, 4), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(-5, 5)), max_size=60),
)
def test_it_is_a_sorted_multiset(numbers: list[int], changes: list[tuple[int, int]]) -> None:
    values = np.array(numbers, dtype=np.float32)
    order = SortedValues(values)
    for place, new in changes:
        at = place % len(values)
        order.replace(values[at : at + 1], np.array([new], dtype=np.float32))
        values[at] = new
    assert order.sorted().tolist() == sorted(values.tolist())
    assert [order.kth(rank) for rank in range(len(values))] == sorted(values.tolist())
    for value in (-4, 0, 0.5, 5):
        assert order.count_below(value) == (values < value).sum()
        assert order.count_up_to(value) == (values <= value).sum()


@pytest.mark.parametrize("kind", ["spread", "ties", "crowded", "drifting", "equal"])
def test_leaves_and_nodes_split_empty_and_are_laid_out_again(kind: str) -> None:
    rng = np.random.default_rng(0)

    def draw(count: int, round: int) -> np.ndarray:
        made = {
            "spread": rng.normal(size=count),
            "ties": rng.integers(0, 3, count),
            "crowded": 1e-4 * rng.normal(size=count),
            "drifting": rng.normal(size=count) + round,
            "equal": np.full(count, float(round)),
        }
        return made[kind].astype(np.float32)

    values = rng.normal(size=70_000).astype(np.float32)
    order = SortedValues(values)
    for round in range(40):
        at = rng.choice(len(values), 7_000, replace=False)
        new = draw(len(at), round)
        order.replace(values[at], new)
        values[at] = new
        ranks = rng.integers(len(values), size=5)
        expected = np.sort(values)
        assert [order.kth(int(rank)) for rank in ranks] == expected[ranks].tolist()
        value = float(expected[ranks[0]])
        assert order.count_below(value) == np.searchsorted(expected, value)
        assert order.count_up_to(value) == np.searchsorted(expected, value, side="right")
    assert len(order) == len(values)
    assert order.nbytes < 8 * len(values)


def test_numbers_that_are_not_there_are_refused() -> None:
    order = SortedValues(np.array([1.0, 2.0]))
    with pytest.raises(KeyError, match=r"3\.0 is not among the numbers"):
        order.replace(np.array([3.0]), np.array([4.0]))
    with pytest.raises(IndexError, match="rank 2 of 2"):
        SortedValues(np.array([1.0, 2.0])).kth(2)
