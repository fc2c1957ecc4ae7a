"""The methods of the paper: NumPy and numba, no torch.

A new method is one class and one line: a subclass of :class:`Method`, and ``register(MyMethod)``.
"""

from __future__ import annotations

from opera.methods.base import Draw, Method, NoSettings, Plan, Probabilities
from opera.methods.registry import METHODS, method_named, register_method
from opera.methods.scores import PairScores

__all__ = [
    "METHODS",
    "Draw",
    "Method",
    "NoSettings",
    "PairScores",
    "Plan",
    "Probabilities",
    "method_named",
    "register_method",
]
