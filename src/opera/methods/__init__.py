"""The methods of the paper: NumPy and numba, no torch. A new method is one class and one line in ``METHODS``."""

from __future__ import annotations

from typing import Any

from opera.core.errors import SettingError, nearest
from opera.methods.base import Draw, Method, NoSettings, Plan, Probabilities
from opera.methods.dynamic import DynamicPruning
from opera.methods.finetuning import FineTuning
from opera.methods.infobatch import InfoBatch
from opera.methods.scores import PairScores
from opera.methods.static import CBSPruning, RandomPruning, StaticPruning
from opera.methods.twostage import StaticThenDynamic

METHODS: dict[str, type[Method[Any]]] = {
    method.name: method
    for method in (
        FineTuning,
        RandomPruning,
        StaticPruning,
        CBSPruning,
        InfoBatch,
        DynamicPruning,
        StaticThenDynamic,
    )
}

__all__ = [
    "METHODS",
    "Draw",
    "Method",
    "NoSettings",
    "PairScores",
    "Plan",
    "Probabilities",
    "method_named",
]


def method_named(name: str) -> type[Method[Any]]:
    """Look a method up by the name users call it.

    Raises:
        SettingError: if there is none, with the nearest.
    """
    if name not in METHODS:
        raise SettingError(f"unknown method '{name}'{nearest(name, METHODS)} (known: {', '.join(METHODS)})")
    return METHODS[name]
