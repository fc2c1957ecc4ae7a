"""Rows of the paper's tables with the figures of a grid beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opera.experiments.paper.matching import our_measure
from opera.experiments.paper.tables import RANKS, PaperRow

NOT_RUN = "not run"


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of the paper and the grid's.

    Attributes:
        paper: the paper's figure; ``None`` if it does not state one.
        ours: the grid's, one per seed; empty if it has none.
        missing: why it has none.
        scale: factor of the difference: 100 gives points of a measure.
    """

    paper: float | None
    ours: tuple[float, ...] = ()
    missing: str = NOT_RUN
    scale: float = 100.0

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return float(np.mean(self.ours)) if self.ours else None

    @property
    def sd(self) -> float | None:
        """Sample standard deviation over the seeds; ``None`` for fewer than two."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """The grid's mean minus the paper's figure, scaled."""
        return (
            None
            if self.mean is None or self.paper is None
            else self.scale * (self.mean - self.paper)
        )


@dataclass(frozen=True)
class ComparedRow:
    """A row of the paper with its figures and the grid's.

    Attributes:
        row: the paper's row; without values for a number of steps that only the grid has.
        steps: steps of the grid's runs; ``None`` if it has none, and for the pretrained model.
        figures: by the paper's name of each measure.
        reading: the reading of the paper that the runs follow, where those of several readings differ.
        candidates: labels of the groups that match the row, if there are several and so none was taken.
    """

    row: PaperRow
    steps: int | None
    figures: dict[str, ComparedFigure]
    reading: str = ""
    candidates: tuple[str, ...] = ()


def paper_figures(row: PaperRow) -> dict[str, ComparedFigure]:
    """The paper's side of a row. Measures differ in points; ranks, speeds, percentages and counts are not scaled."""
    is_rank = row.data.partition(",")[0] in RANKS
    return {
        name: ComparedFigure(value, scale=100.0 if our_measure(name) and not is_rank else 1.0)
        for name, value in row.values.items()
    }
