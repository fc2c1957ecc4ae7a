"""The registry of methods: those of the paper, and those that users add."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, TypeVar

from opera.core.errors import SettingError, nearest
from opera.methods.base import Method
from opera.methods.dynamic import DynamicPruning
from opera.methods.finetuning import FineTuning
from opera.methods.infobatch import InfoBatch
from opera.methods.random_pruning import RandomPruning
from opera.methods.static import CBSPruning, StaticPruning
from opera.methods.twostage import StaticThenDynamic

METHODS: dict[str, type[Method[Any]]] = {}
"""All registered methods by name, in the order of tables."""

ENTRY_POINTS = "opera.methods"
"""The group in which an installed package lists its methods, so that every ``opera`` command finds them."""

M = TypeVar("M", bound=type[Method[Any]])


def register(method: M) -> M:
    """Register a method under its name. Also a class decorator: returns the class.

    Raises:
        ValueError: if another method has the name, in any case.
    """
    known = _registered(method.name)
    if known is not None and (known.__module__, known.__qualname__) != (method.__module__, method.__qualname__):
        raise ValueError(
            f"a method named '{known.name}' is registered already: {known.__module__}.{known.__qualname__}"
        )
    METHODS[method.name] = method
    return method


def method_named(name: str) -> type[Method[Any]]:
    """Look a method up by name, in any case; ``method_named(name).name`` is the canonical spelling.

    A name that is not registered is looked for among the entry points of installed packages.

    Raises:
        SettingError: if there is no such method, with the nearest name.
    """
    if _registered(name) is None:
        for entry in entry_points(group=ENTRY_POINTS):
            register(entry.load())
    method = _registered(name)
    if method is None:
        raise SettingError(f"unknown method '{name}'{nearest(name.lower(), METHODS)} (known: {', '.join(METHODS)})")
    return method


def _registered(name: str) -> type[Method[Any]] | None:
    by_folded_name = {known.casefold(): method for known, method in METHODS.items()}
    return by_folded_name.get(name.casefold())


for _method in (FineTuning, RandomPruning, StaticPruning, CBSPruning, InfoBatch, DynamicPruning, StaticThenDynamic):
    register(_method)
