"""Compare the methods of finished runs; reads only run folders."""

from opera.experiments.analysis.groups import (
    Group,
    MeanStd,
    find_runs,
    format_settings,
    group_runs,
    short_name,
)
from opera.experiments.analysis.results import (
    BASE,
    TESTED,
    Comparison,
    ResultsTable,
    analyse_runs,
)
from opera.experiments.analysis.significance import PairedTest

__all__ = [
    "BASE",
    "TESTED",
    "Comparison",
    "Group",
    "MeanStd",
    "PairedTest",
    "ResultsTable",
    "analyse_runs",
    "find_runs",
    "format_settings",
    "group_runs",
    "short_name",
]
