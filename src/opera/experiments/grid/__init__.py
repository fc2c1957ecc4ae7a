"""A grid of methods, seeds and steps on some data sets, run cell by cell and compared."""

from opera.experiments.grid.compare import compare

__all__ = ["compare"]
