"""The adapter: a residual projection over frozen vectors. ``load`` needs NumPy alone."""

from opera.adapter.file import NumpyAdapter, load

__all__ = ["NumpyAdapter", "load"]
