"""What finished runs say when they are compared: reads run folders alone, without torch."""

from opera.analysis.comparison import TESTED, UNTRAINED, Comparison, Row, Spread, Table, compare_runs
from opera.analysis.facts import BUCKETS, Coverage, Race, average_ranks, coverage, mean_ranks, races, tertiles, winners
from opera.analysis.groups import (
    PAPERS,
    PRIMARY,
    RECALL,
    Group,
    find_groups,
    find_runs,
    grouped,
    label_of,
    short_name,
    shown_settings,
)
from opera.analysis.significance import PairedTest, holm, paired_test, paired_tests, query_differences

__all__ = [
    "BUCKETS",
    "PAPERS",
    "PRIMARY",
    "RECALL",
    "TESTED",
    "UNTRAINED",
    "Comparison",
    "Coverage",
    "Group",
    "PairedTest",
    "Race",
    "Row",
    "Spread",
    "Table",
    "average_ranks",
    "compare_runs",
    "coverage",
    "find_groups",
    "find_runs",
    "grouped",
    "holm",
    "label_of",
    "mean_ranks",
    "paired_test",
    "paired_tests",
    "query_differences",
    "races",
    "short_name",
    "shown_settings",
    "tertiles",
    "winners",
]
