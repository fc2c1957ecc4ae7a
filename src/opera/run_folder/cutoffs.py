"""When not to answer: cut-offs for the score of the best document, chosen on the test queries.

A cut-off reaches a precision p if the 95% interval of its precision lies above p. It is chosen and
measured on the same queries, so the measured precision is optimistic (docs/deploy.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.intervals import fraction_interval
from opera.run_folder.reading import RecordPart

PRECISIONS = (0.7, 0.8, 0.9)
"""A run records a cut-off for each of these, if one reaches it."""
UNLABELLED = "Documents without a label count as not relevant, so the true precision may be higher."


class CutoffPoint(RecordPart):
    """The results on the test queries if OPERA answers only when the best document scores enough.

    Attributes:
        score: the lowest score of an answer.
        answered: how many queries have an answer.
        relevant: how many of the answers are relevant. Documents without a label count as not
            relevant.
    """

    score: float
    answered: int
    relevant: int


class Cutoff(RecordPart):
    """The cut-off for a precision, with 95% intervals over the test queries.

    Attributes:
        target: the precision that it was chosen for.
        score: the lowest score of an answer.
        precision: the fraction of the answers that are relevant. It is a lower bound, since
            documents without a label count as not relevant.
        low: lower end of its interval.
        high: upper end.
        answered: the fraction of the queries that have an answer.
        answered_low: lower end of its interval.
        answered_high: upper end.
    """

    target: float
    score: float
    precision: float
    low: float
    high: float
    answered: float
    answered_low: float
    answered_high: float

    @property
    def sentence(self) -> str:
        """Say what the cut-off does."""
        return (
            f"Answer only if the best document scores {self.score:.3f} or more: at least "
            f"{self.target:.0%} of these answers are relevant ({self.precision:.0%} on test, 95% "
            f"interval {self.low:.0%} to {self.high:.0%}), and {self.answered:.0%} of the "
            f"questions are answered ({self.answered_low:.0%} to {self.answered_high:.0%})."
        )


class CutoffRecord(RecordPart):
    """The cut-offs of a run.

    Attributes:
        queries: how many test queries they were chosen on.
        curve: precision against answered queries, by ascending score; the first point is for all
            queries.
        cutoffs: the cut-offs for :data:`PRECISIONS`, without those that no score reaches.
    """

    queries: int
    curve: list[CutoffPoint]
    cutoffs: list[Cutoff]

    def cutoff(self, target: float) -> Cutoff | None:
        """Return the lowest cut-off that reaches a precision, 0 to 1; ``None`` if none does."""
        for point in self.curve:
            low, high = fraction_interval(point.relevant, point.answered)
            if low >= target:
                answered_low, answered_high = fraction_interval(point.answered, self.queries)
                return Cutoff(
                    target=target,
                    score=point.score,
                    precision=point.relevant / point.answered,
                    low=low,
                    high=high,
                    answered=point.answered / self.queries,
                    answered_low=answered_low,
                    answered_high=answered_high,
                )
        return None

    @property
    def sentences(self) -> list[str]:
        """Describe each cut-off, the precisions that none reaches, and the role of labels."""
        reached = [cutoff.target for cutoff in self.cutoffs]
        unreached = ", ".join(f"{target:.0%}" for target in PRECISIONS if target not in reached)
        failed = [f"No cut-off reaches {unreached} relevant answers."] if unreached else []
        return [*(cutoff.sentence for cutoff in self.cutoffs), *failed, UNLABELLED]


def fit_cutoffs(scores: NDArray[np.float32], is_relevant: NDArray[np.bool_]) -> CutoffRecord:
    """Fit "the best document is relevant" on its score by isotonic regression, and choose cut-offs.

    Candidates are the scores at which the fitted probability rises, so the precision rises with the
    cut-off.

    Args:
        scores: the score of each test query's best document, float32 ``[n]``.
        is_relevant: whether that document is relevant, bool ``[n]``.
    """
    from scipy.optimize import isotonic_regression  # here, since a search needs no scipy

    levels, level_of_query, counts = np.unique(scores, return_inverse=True, return_counts=True)
    relevant = np.bincount(level_of_query, weights=is_relevant)
    starts = isotonic_regression(relevant / counts, weights=counts).blocks[:-1]
    answered_above, relevant_above = (
        np.cumsum(values[::-1])[::-1][starts] for values in (counts, relevant)
    )
    columns = zip(levels[starts].tolist(), answered_above, relevant_above, strict=True)
    curve = [
        CutoffPoint(score=score, answered=int(answered), relevant=int(relevant))
        for score, answered, relevant in columns
    ]
    record = CutoffRecord(queries=len(scores), curve=curve, cutoffs=[])
    chosen = [cutoff for target in PRECISIONS if (cutoff := record.cutoff(target)) is not None]
    return record.model_copy(update={"cutoffs": chosen})
