"""studies/first_visit.py: both methods keep the contract, and do what they are for."""

from __future__ import annotations

import math
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opera.methods import METHODS
from opera.methods.base import NoSettings, Plan
from opera.methods.contract import CHECKS, Check
from opera.methods.finetuning import FineTuning
from worlds import make_pairs

SCRIPT = Path(__file__).parents[1] / "studies" / "first_visit.py"
COUNTS = [1, 2, 5, 3, 4, 6]
BATCH = 4
CHANCE = math.log(2 * BATCH)


@pytest.fixture(scope="module")
def study() -> Iterator[dict[str, Any]]:
    """The names of the script; afterwards its methods are forgotten."""
    before = dict(METHODS)
    yield runpy.run_path(str(SCRIPT), run_name="first_visit")
    METHODS.clear()
    METHODS.update(before)


def made(study: dict[str, Any], **settings: Any) -> Any:
    return study["FirstVisit"](make_pairs(COUNTS), Plan(0, 50, BATCH), study["FirstVisitSettings"](**settings))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("first-visit", {}),
        ("first-visit", {"strength": 1}),
        ("first-visit", {"queries": "likely", "margin": 1}),
        ("first-visit+infobatch", {"rho": 0.5, "delta": 0.3}),
    ],
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract(study: dict[str, Any], check: Check, name: str, settings: dict[str, Any]) -> None:
    method = METHODS[name]
    check(method, method.settings_class(**settings))


def test_a_pair_is_judged_by_its_first_loss_alone(study: dict[str, Any]) -> None:
    method = made(study, strength=5, margin=0.5)
    losses = np.array([CHANCE, 0.75 * CHANCE, 0.5 * CHANCE, 2 * CHANCE], dtype=np.float32)
    method.observe(np.arange(4), losses, losses)
    method.observe(np.arange(4), losses, np.zeros(4, dtype=np.float32))
    assert method._visits.weights()[:5] == pytest.approx([1, 3, 5, 1, 5], abs=1e-5)  # the last was never visited


def test_documents_no_better_than_chance_are_drawn_less_often(study: dict[str, Any]) -> None:
    method = made(study, strength=9)
    query = method.pairs.query_offsets[2]  # of five documents
    method.observe(np.array([query]), np.zeros(1), np.array([2 * CHANCE]))
    after = method.probabilities(0)
    assert after.document[query : query + 5] == pytest.approx([1 / 37, *[9 / 37] * 4])
    assert after.query == pytest.approx(np.full(6, 1 / 6))


def test_likely_queries_are_drawn_more_often(study: dict[str, Any]) -> None:
    method = made(study, strength=9, queries="likely")
    method.observe(np.array([0]), np.zeros(1), np.array([2 * CHANCE]))  # the only document of its query
    assert method.probabilities(0).query == pytest.approx(np.array([1, 9, 9, 9, 9, 9]) / 46)


def test_the_first_pass_has_the_queries_of_ft(study: dict[str, Any]) -> None:
    method, plain = made(study), FineTuning(make_pairs(COUNTS), Plan(0, 50, BATCH), NoSettings())
    for step in range(3):
        ids, expected = method.draw(step).pair_ids, plain.draw(step).pair_ids
        assert (method.pairs.pair_query[ids] == plain.pairs.pair_query[expected]).all()
