"""Inspect a data set before training, and suggest a method."""

from opera.diagnostics.inspect.report import Inspection, inspect

__all__ = ["Inspection", "inspect"]
