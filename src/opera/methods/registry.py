"""The registry of methods: those of the paper, and those that users add."""

from __future__ import annotations

from typing import Any, TypeVar

from opera.core.registry import Registry
from opera.methods.base import Method
from opera.methods.dynamic import DynamicPruning
from opera.methods.finetuning import FineTuning
from opera.methods.infobatch import InfoBatch
from opera.methods.random_pruning import RandomPruning
from opera.methods.static import CBSPruning, StaticPruning
from opera.methods.twostage import StaticThenDynamic

METHODS: Registry[type[Method[Any]]] = Registry("method")
"""All methods by name, in the order of tables."""

M = TypeVar("M", bound=type[Method[Any]])


def register_method(method: M) -> M:
    """Register a method under its ``name``. Also a class decorator: returns the class.

    Raises:
        ValueError: if another method has the name, in any case.
    """
    METHODS.register(method.name, method)
    return method


def method_named(name: str) -> type[Method[Any]]:
    """Look a method up by name, in any case; ``method_named(name).name`` is the canonical spelling.

    Raises:
        SettingError: if there is no such method, with the nearest name.
    """
    return METHODS.find(name)


for _method in (
    FineTuning,
    RandomPruning,
    StaticPruning,
    CBSPruning,
    InfoBatch,
    DynamicPruning,
    StaticThenDynamic,
):
    register_method(_method)
