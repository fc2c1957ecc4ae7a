"""The paper's result tables, beside those of a grid of runs."""

from opera.experiments.analysis import mean_ranks
from opera.experiments.paper.beside import Cell, Line, as_records, compare
from opera.experiments.paper.matching import Grid, data_key, our_measure, wanted, with_settings
from opera.experiments.paper.tables import TABLES, PaperRow, PaperTable, rows_of, table_named

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
