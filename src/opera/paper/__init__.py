"""The paper's result tables, beside those of a grid of runs."""

from opera.analysis import mean_ranks
from opera.paper.comparison import Cell, Line, as_records, compare
from opera.paper.matching import Grid, data_key, our_measure, wanted, with_settings
from opera.paper.tables import TABLES, PaperRow, PaperTable, rows_of, table_named

__all__ = [
    "TABLES",
    "Cell",
    "Grid",
    "Line",
    "PaperRow",
    "PaperTable",
    "as_records",
    "compare",
    "data_key",
    "mean_ranks",
    "our_measure",
    "rows_of",
    "table_named",
    "wanted",
    "with_settings",
]
