"""How training changed each measure on test, by the table of test queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from opera.core.intervals import DIFFERENCE, OF_ONE_QUERY, mean_interval, points
from opera.core.measure_names import column


@dataclass(frozen=True)
class Change:
    """The change of a measure on the test queries, from the base model to the final model.

    Attributes:
        difference: mean of the final minus the base measure.
        low: lower end of its 95% interval over the queries.
        high: upper end of the interval.
    """

    difference: float
    low: float
    high: float

    def interval_in_points(self) -> str:
        """The interval for a table: ``+0.3 to +2.1``; empty for a single query."""
        if (self.low, self.high) == OF_ONE_QUERY:
            return ""
        return f"{points(self.low)} to {points(self.high)}"

    def in_points(self) -> str:
        """The change for a table: ``+1.2 (+0.3 to +2.1)``."""
        interval = self.interval_in_points()
        return points(self.difference) + (f" ({interval})" if interval else "")


def changes_on_test(per_query: pa.Table, measures: Iterable[str]) -> dict[str, Change]:
    """Compare the base and the final model on each query, by the measures that the table has.

    Args:
        per_query: a row per test query, from :meth:`opera.run_folder.folder.Run.per_query`.
        measures: names of measures.
    """
    changes = {}
    for name in measures:
        base, final = column("base", name), column("final", name)
        if {base, final} <= set(per_query.column_names) and per_query.num_rows:
            differences = per_query[final].to_numpy() - per_query[base].to_numpy()
            low, high = mean_interval(differences, bounds=DIFFERENCE)
            changes[name] = Change(float(differences.mean()), low, high)
    return changes
