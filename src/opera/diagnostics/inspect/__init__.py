"""What a data set is like before any training, and which method it calls for."""

from opera.diagnostics.inspect.report import Inspection, inspect

__all__ = ["Inspection", "inspect"]
