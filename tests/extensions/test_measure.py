"""The example of a measure works everywhere that takes measures: one function and one line."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.core.errors import SettingError
from opera.data import Qrels
from opera.retrieval.measures import OWN_MEASURES, Ranking, per_query

EXAMPLE = Path(__file__).parent / "measure_example.py"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.retrieval.measures.OWN_MEASURES", dict(OWN_MEASURES))
    runpy.run_path(str(EXAMPLE))


def test_its_values_are_those_of_the_definition() -> None:
    ranking = Ranking(np.array([[4, 1, 0], [2, 3, 0]], dtype=np.int32), np.ones((2, 3), dtype=np.float32))
    qrels = Qrels.from_arrays(np.array([0, 0, 1]), np.array([4, 0, 9]), np.array([1, 2, 1]))
    values = per_query(ranking, qrels, ["RBP80@10", "RBP80@2", "R@3"])
    assert values["RBP80@10"] == pytest.approx([0.2 * (1 + 0.8**2), 0])
    assert values["RBP80@2"] == pytest.approx([0.2, 0])


def test_evaluate_takes_it(beir: Path, static_model: Path) -> None:
    found = opera.evaluate(beir, model=static_model, measures=["RBP80@10", "nDCG@10"])
    assert list(found.measures) == ["RBP80@10", "nDCG@10"]
    assert 0 < found.measures["RBP80@10"] < 1


def test_a_typo_in_its_name_is_corrected() -> None:
    ranking = Ranking(np.zeros((1, 1), dtype=np.int32), np.ones((1, 1), dtype=np.float32))
    qrels = Qrels.from_arrays(np.array([0]), np.array([0]), np.array([1]))
    with pytest.raises(SettingError, match=r"did you mean 'RBP80@10'\?"):
        per_query(ranking, qrels, ["RBP8@10"])
