"""The OPERA paper (COLM 2026) on top of ``opera``: its tables, data sets, settings and theorem."""
