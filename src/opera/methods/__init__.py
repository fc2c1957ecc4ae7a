"""The methods of the paper, and denoising: NumPy, no torch.

A new method is one class and one line: a subclass of :class:`Method`, and
``register_method(MyMethod)``. This module exports all that the class needs.
"""

from __future__ import annotations

from typing import Any, TypeVar

from opera.core.registry import Registry
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, NoSettings, Plan, Probabilities
from opera.methods.denoise import Denoise
from opera.methods.dynamic import DynamicPruning
from opera.methods.finetuning import FineTuning
from opera.methods.infobatch import InfoBatch
from opera.methods.scores import PairScores
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
"""All methods by name, in the order of tables: those of the paper, ``denoise``, then those that
users add.
"""

AUTO, DEFAULT_METHOD = "auto", "denoise"
"""What ``method`` is by default, and the method that it stands for. ``denoise`` is ``ft`` until
labels look wrong (docs/noisy-labels.md).
"""

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
    Denoise,
):
    register_method(_method)
