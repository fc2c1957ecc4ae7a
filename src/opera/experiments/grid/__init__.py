"""A grid of methods, seeds and steps on some data sets: planned, run cell by cell, and analysed."""
