"""How exactly recorded sampling probabilities are encoded, and their file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.runs.sampling import CODES, MAX_LOG_RATIO, SamplingRecord, quantised, ratios

ERROR = 0.034  # as the module states


class TestQuantisation:
    @given(st.lists(st.floats(0, 1e300), min_size=1, max_size=20))
    def test_ratios_are_at_most_3_4_percent_off_and_beyond_the_ends_are_the_ends(self, values: list[float]) -> None:
        truth = np.sort(values)
        codes = quantised(truth)
        expected = np.where(truth > 0, np.clip(truth, 2.0**-MAX_LOG_RATIO, 2.0**MAX_LOG_RATIO), 0)
        assert (np.abs(ratios(codes) - expected) <= ERROR * expected).all()
        assert (np.diff(codes.astype(int)) >= 0).all()

    def test_every_code_comes_back(self) -> None:
        codes = np.arange(CODES + 1, dtype=np.uint8)
        assert np.array_equal(quantised(ratios(codes)), codes)
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
