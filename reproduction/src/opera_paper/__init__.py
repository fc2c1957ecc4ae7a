"""Reproduce the OPERA paper (COLM 2026) with ``opera``: tables, data sets, settings and theorem."""
