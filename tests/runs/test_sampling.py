"""How exactly recorded sampling probabilities are encoded, and their file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from opera.runs.sampling import CODES, MAX_LOG_RATIO, SamplingRecord, quantised, ratios

ERROR = 0.034  # as the module states


def near(codes: NDArray[np.float64], truth: NDArray[np.float64]) -> bool:
    return bool((np.abs(codes - truth) <= ERROR * truth).all())


class TestQuantisation:
    @given(st.lists(st.floats(2.0**-MAX_LOG_RATIO, 2.0**MAX_LOG_RATIO), min_size=1, max_size=20))
    def test_ratios_within_the_ends_are_at_most_3_4_percent_off(self, values: list[float]) -> None:
        assert near(ratios(quantised(np.array(values))), np.array(values))

    @given(st.floats(0, 1e300, exclude_min=True))
    def test_what_lies_beyond_goes_to_the_ends_and_never_to_zero(self, value: float) -> None:
        back = float(ratios(quantised(np.array([value])))[0])
        assert back == pytest.approx(np.clip(value, 2.0**-MAX_LOG_RATIO, 2.0**MAX_LOG_RATIO), rel=ERROR)

    @given(st.lists(st.floats(0, 1e5), min_size=2, max_size=20))
    def test_order_is_kept(self, values: list[float]) -> None:
        assert (np.diff(quantised(np.sort(values)).astype(int)) >= 0).all()

    @given(st.integers(0, CODES))
    def test_every_code_comes_back(self, code: int) -> None:
        assert quantised(ratios(np.array([code], dtype=np.uint8))).tolist() == [code]

    def test_zero_stays_zero_and_one_stays_one(self) -> None:
        assert ratios(quantised(np.array([0.0, 1.0]))).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("recorded", [0, 3])
def test_a_record_survives_its_file(recorded: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    record = SamplingRecord(
        np.arange(recorded, dtype=np.int32),
        np.array([0, 2], dtype=np.int32),
        np.array([0, 1, 5], dtype=np.int32),
        rng.integers(CODES + 1, size=(recorded, 2)).astype(np.uint8),
        rng.integers(CODES + 1, size=(recorded, 3)).astype(np.uint8),
    )
    record.write(tmp_path / "sampling.npz")
    again = SamplingRecord.read(tmp_path / "sampling.npz")
    for name, values in vars(record).items():
        assert getattr(again, name).dtype == values.dtype, name
        assert np.array_equal(getattr(again, name), values), name


def test_until_cuts_what_is_by_step_and_nothing_else() -> None:
    codes = np.arange(6, dtype=np.uint8).reshape(3, 2)
    ids = np.arange(2, dtype=np.int32)
    record = SamplingRecord(np.array([0, 5, 9], dtype=np.int32), ids, ids, codes, codes)
    earlier = record.until(9)
    assert earlier.steps.tolist() == [0, 5]
    assert earlier.query_ids.tolist() == earlier.pair_ids.tolist() == [0, 1]
    assert earlier.query_codes.tolist() == earlier.document_codes.tolist() == codes[:2].tolist()
