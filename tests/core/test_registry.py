"""One registry for everything that users extend: shipped names first, found in any case, never replaced."""

from __future__ import annotations

from typing import Any

import pytest

from opera.config.negatives import NEGATIVES
from opera.config.optimisation import LOSSES
from opera.config.recipe import make_recipe
from opera.core.errors import SettingError
from opera.core.registry import Registry
from opera.engine import distillation  # noqa: F401 - fills the registry
from opera.engine.loss import InfoNCELoss
from opera.methods import METHODS
from opera.retrieval.measures import MEASURES
from opera.training_set.negatives import RandomNegatives


@pytest.fixture
def registry() -> Registry[Any]:
    registry: Registry[Any] = Registry("thing", shipped=("one",))
    registry.register("two", RandomNegatives)
    return registry


def test_shipped_names_come_first_and_are_found_in_any_case(registry: Registry[Any]) -> None:
    assert registry.names == ["one", "two"]
    registry.ship(one=InfoNCELoss)
    assert (registry.find("ONE"), registry.find("Two")) == (InfoNCELoss, RandomNegatives)
    with pytest.raises(SettingError, match=r"unknown thing 'twoo'; did you mean 'two'\? \(known: one, two\)"):
        registry.find("twoo")


@pytest.mark.parametrize("name", ["one", "ONE", "two"])
def test_a_name_is_never_given_to_another_thing(name: str, registry: Registry[Any]) -> None:
    with pytest.raises(ValueError, match="is already registered"):
        registry.register(name, InfoNCELoss)
    assert registry.register("two", RandomNegatives) is RandomNegatives


def test_every_shipped_name_has_its_thing() -> None:
    for registry in (METHODS, NEGATIVES, LOSSES, MEASURES):
        assert set(registry.names) == set(registry)


def test_settings_take_registered_names_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "hinge", InfoNCELoss)
    assert make_recipe({"loss": "Hinge", "negatives": "HARD"}).train.loss == "hinge"
