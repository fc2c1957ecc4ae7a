"""The facts that all readers of a finished run show, each decided once.

:mod:`opera.run_folder.verdict` puts them into words.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.figures import (
    DIFFERENCE,
    LEAST_QUERIES,
    OF_ONE_QUERY,
    PRIMARY,
    column,
    mean_interval,
    points,
)
from opera.data.names import command_words
from opera.run_folder.record import GuardRecord, RunRecord


@dataclass(frozen=True)
class Change:
    """The change of a measure on the test queries, from one model to another.

    Attributes:
        difference: mean of the second minus the first model.
        low: lower end of its 95% interval over the queries.
        high: upper end of the interval.
    """

    difference: float
    low: float
    high: float

    @classmethod
    def of(cls, differences: NDArray[np.float64]) -> Change:
        """Average the differences of the queries, float64 ``[queries]``, with the interval."""
        return cls(float(differences.mean()), *mean_interval(differences, bounds=DIFFERENCE))

    def interval_in_points(self) -> str:
        """The interval for a table: ``+0.3 to +2.1``; empty for a single query."""
        ends = self.low, self.high
        return "" if ends == OF_ONE_QUERY else " to ".join(map(points, ends))

    def cells(self) -> tuple[str, str]:
        """The difference and the interval as cells of a table."""
        return points(self.difference), self.interval_in_points()

    def in_points(self) -> str:
        """The change in one cell: ``+1.2 (+0.3 to +2.1)``."""
        difference, interval = self.cells()
        return f"{difference} ({interval})" if interval else difference


@dataclass(frozen=True)
class RunSummary:
    """The facts about a finished run.

    Attributes:
        folder: the run folder.
        record: the contents of ``run.json``.
        measures: the contents of ``measures.json``.
        queries: how many test queries there are.
        changes: from the base to the final model on the test queries, by measure.
        verdict: whether the run was worth it, as :func:`verdict_of`; ``None`` without a guard.
        bm25: from the final model to keyword search; ``None`` without keyword search.
        hybrid: from the final model to both together; ``None`` without a weight for that.
    """

    folder: Path
    record: RunRecord
    measures: Mapping[str, Mapping[str, float]]
    queries: int
    changes: Mapping[str, Change]
    verdict: str | None
    bm25: Change | None
    hybrid: Change | None

    @classmethod
    def of(
        cls,
        folder: Path,
        record: RunRecord,
        measures: Mapping[str, Mapping[str, float]],
        per_query: pa.Table,
    ) -> RunSummary:
        """Summarise a run; ``per_query`` has a row per test query."""
        changes = {name: _change(per_query, name, "base", "final") for name in measures["final"]}
        return cls(
            folder,
            record,
            measures,
            per_query.num_rows,
            {name: change for name, change in changes.items() if change is not None},
            None if record.guard is None else verdict_of(record.guard),
            _change(per_query, PRIMARY, "final", "bm25"),
            _change(per_query, PRIMARY, "final", "hybrid"),
        )

    @property
    def bm25_is_better(self) -> bool:
        """Whether keyword search alone is better than the final model."""
        return self.bm25 is not None and self.bm25.low > 0 and self.queries >= LEAST_QUERIES

    def next_commands(self, grid: Path | None = None) -> dict[str, str]:
        """Return the commands that come next, by name. A grid has a report for all of its runs."""
        folder, sets = shlex.quote(str(self.folder)), self.record.sets
        # a search takes one data set
        searched = f"{command_words(sets[0].source)} --model {folder}" if sets else folder
        commands = {
            "review": f"opera review {folder}",
            "search": f'opera search {searched} "your question"',
            "report": f"opera report {shlex.quote(str(grid or self.folder))}",
        }
        if self.record.settings["query_vectors"] is not None:
            del commands["search"]  # the run has no model to embed a question
        return commands

    def as_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {
            "run": str(self.folder),
            "verdict": self.verdict,
            "measures": self.measures,
            "changes": {name: vars(change) for name, change in self.changes.items()},
            **self.record.model_dump(
                include={"guard", "noisy_labels", "matryoshka", "sets", "cutoffs"}
            ),
        }


def _change(per_query: pa.Table, measure: str, before: str, after: str) -> Change | None:
    """Compare two models on each query; ``None`` if a column is missing or the table is empty."""
    names = [column(before, measure), column(after, measure)]
    if not (per_query.num_rows and set(names) <= set(per_query.column_names)):
        return None
    first, second = (per_query[name].to_numpy() for name in names)
    return Change.of(second - first)


def verdict_of(guard: GuardRecord) -> str:
    """Return the verdict in a few words; ``better`` only if both dev and test say so."""
    if guard.dev_queries < LEAST_QUERIES:
        return f"too few dev queries to tell ({guard.dev_queries} of {LEAST_QUERIES})"
    if guard.dev_verdict == "kept":
        return "base model kept"
    on_dev, test = guard.dev_verdict == "better", guard.test
    if test is None:
        return "better on dev" if on_dev else "no significant gain"
    if test.queries < LEAST_QUERIES or test.low <= 0 <= test.high:
        return "better on dev, not confirmed on test" if on_dev else "no significant gain"
    if test.low > 0:
        return "better" if on_dev else "better on test, not confirmed on dev"
    return "better on dev, worse on test" if on_dev else "worse on test"
