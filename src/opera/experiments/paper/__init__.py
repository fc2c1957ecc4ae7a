"""The paper's result tables, side by side with those of a grid of runs."""

from opera.experiments.analysis import mean_ranks
from opera.experiments.paper.matching import (
    GridRuns,
    data_key,
    matching_methods,
    our_measure,
    with_grid_names,
    with_settings,
)
from opera.experiments.paper.readings import READINGS, method_settings
from opera.experiments.paper.rows import ComparedFigure, ComparedRow
from opera.experiments.paper.side_by_side import align_table, as_records
from opera.experiments.paper.tables import TABLES, PaperRow, PaperTable, find_table, table_rows

__all__ = [
    "READINGS",
    "TABLES",
    "ComparedFigure",
    "ComparedRow",
    "GridRuns",
    "PaperRow",
    "PaperTable",
    "align_table",
    "as_records",
    "data_key",
    "find_table",
    "matching_methods",
    "mean_ranks",
    "method_settings",
    "our_measure",
    "table_rows",
    "with_grid_names",
    "with_settings",
]
