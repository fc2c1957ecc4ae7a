"""One registry for everything that users extend: shipped names first, found in any case, never replaced."""

from typing import Any

import pytest

from opera.config.negatives import NEGATIVES
from opera.config.optimisation import LOSSES
from opera.core.registry import Registry
from opera.methods import METHODS
from opera.retrieval.measures import MEASURES
from opera.training.loss import InfoNCELoss
from opera.training.negatives import RandomNegatives


@pytest.fixture
def registry() -> Registry[Any]:
    registry: Registry[Any] = Registry("thing", shipped=("one",))
    registry.register("two", RandomNegatives)
    return registry


@pytest.mark.parametrize("name", ["one", "ONE", "two"])
def test_a_name_is_never_given_to_another_thing(name, registry):
    with pytest.raises(ValueError, match="is already registered"):
        registry.register(name, InfoNCELoss)
    assert registry.register("two", RandomNegatives) is RandomNegatives


def test_every_shipped_name_has_its_thing():
    for registry in (METHODS, NEGATIVES, LOSSES, MEASURES):
        assert set(registry.names) == set(registry)
