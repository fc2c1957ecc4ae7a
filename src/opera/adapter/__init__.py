"""The adapter: a residual projection over frozen vectors. ``load`` needs no torch."""

from opera.adapter.file import NumpyAdapter, load

__all__ = ["NumpyAdapter", "load"]
