"""The methods of the paper, and denoising: NumPy, no torch.

To add a method, write a subclass of :class:`Method` and call ``register_method(MyMethod)``. This
module exports all names that the subclass needs.
"""

from __future__ import annotations

from typing import Any, TypeVar

from opera.core.registry import Registry
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, NoSettings, PairScores, Plan, Probabilities
from opera.methods.denoise import Denoise
from opera.methods.dynamic import DynamicPruning
from opera.methods.finetuning import FineTuning
from opera.methods.infobatch import InfoBatch
from opera.methods.static import CBSPruning, RandomPruning, StaticPruning
from opera.methods.twostage import StaticThenDynamic

__all__ = [
    "AUTO",
    "DEFAULT_METHOD",
    "METHODS",
    "Draw",
    "Method",
    "NoSettings",
    "PairScores",
    "Plan",
    "Probabilities",
    "Settings",
    "TrainingPairs",
    "generator",
    "method_named",
    "register_method",
    "setting",
]

METHODS: Registry[type[Method[Any]]] = Registry("method")
"""All methods by name, in the order of tables: the paper's, ``denoise``, then user methods."""

AUTO, DEFAULT_METHOD = "auto", "denoise"
"""The default of ``method``, and the method it selects. If no label looks wrong, ``denoise`` is
identical to ``ft`` (docs/noisy-labels.md).
"""

M = TypeVar("M", bound=type[Method[Any]])


def register_method(method: M) -> M:
    """Register a method under its ``name``; also works as a class decorator.

    Raises:
        ValueError: if a method has this name; upper and lower case do not differ.

    Examples:
        >>> from opera.methods import METHODS, register_method
        >>> from opera.methods.finetuning import FineTuning
        >>> @register_method
        ... class MyFineTuning(FineTuning):
        ...     name, title = "my-ft", "My fine-tuning"
        >>> "my-ft" in METHODS
        True
    """
    METHODS.register(method.name, method)
    return method


def method_named(name: str) -> type[Method[Any]]:
    """Return the method of a name, also of ``auto``; upper and lower case do not differ.

    Raises:
        SettingError: if there is no such method, with the nearest name.

    Examples:
        >>> from opera.methods import method_named
        >>> method_named("DP").title
        'Dynamic pruning'
    """
    return METHODS.find(DEFAULT_METHOD if name.lower() == AUTO else name)


for _method in (
    FineTuning,
    RandomPruning,
    StaticPruning,
    CBSPruning,
    InfoBatch,
    DynamicPruning,
    StaticThenDynamic,
    Denoise,
):
    register_method(_method)
