"""One registry for everything that users extend: shipped names first, found in any case, never replaced."""

from __future__ import annotations

from typing import Any

import pytest

from opera.config.negatives import NEGATIVES
from opera.config.optimisation import LOSSES
from opera.config.recipe import docs_by_group, make_recipe
from opera.core.errors import SettingError
from opera.core.registry import Registry
from opera.engine import distillation  # noqa: F401 - fills the registry
from opera.engine.loss import InfoNCELoss
from opera.methods import METHODS
from opera.retrieval.measures import OWN_MEASURES
from opera.training_set.negatives import RandomNegatives


def test_shipped_names_are_valid_before_their_things_are_loaded() -> None:
    registry: Registry[int] = Registry("number", shipped=("one", "two"))
    assert registry.names == ["one", "two"]
    registry.ship(one=1, two=2)
    registry.register("three", 3)
    assert registry.names == ["one", "two", "three"]
    assert (registry.find("ONE"), registry.find("Three")) == (1, 3)
    with pytest.raises(SettingError, match=r"unknown number 'thre'; did you mean 'three'\? \(known: one, two, three\)"):
        registry.find("thre")


@pytest.mark.parametrize("name", ["one", "ONE", "two"])
def test_a_name_is_never_given_to_another_thing(name: str) -> None:
    registry: Registry[Any] = Registry("thing", shipped=("one",))
    registry.register("two", RandomNegatives)
    with pytest.raises(ValueError, match="is already registered"):
        registry.register(name, InfoNCELoss)
    assert registry.register("two", RandomNegatives) is RandomNegatives


def test_every_shipped_name_has_its_thing() -> None:
    for registry in (METHODS, NEGATIVES, LOSSES, OWN_MEASURES):
        assert set(registry.names) == set(registry)


def test_settings_take_registered_names_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "hinge", InfoNCELoss)
    assert make_recipe({"loss": "Hinge", "negatives": "HARD"}).train.loss == "hinge"
    assert "random | hard | given | teacher" in {doc.kind for group in docs_by_group().values() for doc in group}
    with pytest.raises(SettingError, match="loss: must be 'infonce', 'distill' or 'hinge', got 'squared'"):
        make_recipe({"loss": "squared"})
