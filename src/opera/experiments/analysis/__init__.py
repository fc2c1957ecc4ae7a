"""Compare the methods of finished runs; reads only run folders."""

from opera.experiments.analysis.groups import (
    Group,
    MeanStd,
    find_runs,
    format_settings,
    group_runs,
    method_label,
    short_name,
)
from opera.experiments.analysis.results import (
    BASE,
    TESTED,
    Comparison,
    GuardResult,
    MethodResult,
    ResultsTable,
    analyse_runs,
    average_ranks,
)
from opera.experiments.analysis.significance import (
    PairedTest,
    holm,
    paired_test,
    paired_tests,
)

__all__ = [
    "BASE",
    "TESTED",
    "Comparison",
    "Group",
    "GuardResult",
    "MeanStd",
    "MethodResult",
    "PairedTest",
    "ResultsTable",
    "analyse_runs",
    "average_ranks",
    "find_runs",
    "format_settings",
    "group_runs",
    "holm",
    "method_label",
    "paired_test",
    "paired_tests",
    "short_name",
]
