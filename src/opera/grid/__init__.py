"""A grid of methods, seeds and steps on some data sets, run cell by cell and compared."""

from opera.grid.comparing import compare

__all__ = ["compare"]
