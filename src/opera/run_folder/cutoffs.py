"""When not to answer: cut-offs for the score of the best document, chosen on the test queries.

The same queries choose and measure a cut-off, so its measured precision is optimistic. The lower
end of the 95% interval is valid all the same, since it is corrected for the number of candidates
(docs/deploy.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.figures import TAIL, fraction_interval
from opera.run_folder.reading import RecordPart

PRECISIONS = (0.7, 0.8, 0.9)
"""A run records a cut-off for each of these, if one reaches it."""
STARTS, STEPS = 5, 12
"""The candidates answer all, ½, ¼ ... of the queries, and :data:`STEPS` numbers per halving."""


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
        precision: the fraction of the answers that are relevant on the test queries, which chose
            the cut-off. Documents without a label count as not relevant.
        low: lower end of its interval: the target.
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
            f"Answer only if the model scores the best document {self.score:.3f} or more "
            f"(--min-precision {self.target:g}): at least {self.target:.0%} of these answers are "
            f"relevant ({self.precision:.0%} on test, 95% interval {self.low:.0%} to "
            f"{self.high:.0%}), and {self.answered:.0%} of the questions are answered "
            f"({self.answered_low:.0%} to {self.answered_high:.0%})."
        )


class CutoffRecord(RecordPart):
    """The cut-offs of a run.

    Attributes:
        queries: how many test queries they were chosen on.
        curve: precision against answered queries for every candidate, by ascending score; the
            first point is for all queries.
        cutoffs: the cut-offs for :data:`PRECISIONS`, without those that no score reaches.
    """

    queries: int
    curve: list[CutoffPoint]
    cutoffs: list[Cutoff]

    def cutoff(self, target: float) -> Cutoff | None:
        """Return the lowest cut-off that reaches a precision, 0 to 1; ``None`` if none does.

        Each candidate has an exact binomial test of "its precision is below the target". The tests
        go from the highest score down, and stop at the first that does not reject. They start at
        each of the :data:`STARTS` halvings, each with its share of :data:`TAIL`; a start takes over
        the level of the tests before it that rejected (the fallback procedure, Wiens 2003). So the
        probability that any cut-off is wrongly said to reach the target is at most :data:`TAIL`.
        """
        from scipy.special import bdtrc  # here, since a search needs no scipy

        level, starts, chosen = 0.0, 0, None
        for point in reversed(self.curve):
            passed = sum(point.answered >= self.queries / 2**halvings for halvings in range(STARTS))
            level, starts = level + (passed - starts) * TAIL / STARTS, passed
            if bdtrc(point.relevant - 1, point.answered, target) <= level:
                chosen = point
            else:
                level = 0.0
        if chosen is None:
            return None
        answered_low, answered_high = fraction_interval(chosen.answered, self.queries)
        return Cutoff(
            target=target,
            score=chosen.score,
            precision=chosen.relevant / chosen.answered,
            low=target,
            high=fraction_interval(chosen.relevant, chosen.answered)[1],
            answered=chosen.answered / self.queries,
            answered_low=answered_low,
            answered_high=answered_high,
        )

    @property
    def sentences(self) -> list[str]:
        """Describe each cut-off, the precisions that none reaches, and the role of labels."""
        targets = set(PRECISIONS).difference(cutoff.target for cutoff in self.cutoffs)
        unreached = ", ".join(f"{target:.0%}" for target in sorted(targets))
        failed = [f"These test queries show no cut-off for {unreached}."] if unreached else []
        return [
            *(cutoff.sentence for cutoff in self.cutoffs),
            *failed,
            "Documents without a label count as not relevant, so the true precision may be higher.",
        ]


def fit_cutoffs(scores: NDArray[np.float32], is_relevant: NDArray[np.bool_]) -> CutoffRecord:
    """Count the relevant answers of every candidate, and choose cut-offs.

    Only the scores decide which candidates there are, so the tests of the candidates are valid.

    Args:
        scores: the score of each test query's best document, float32 ``[n]``.
        is_relevant: whether that document is relevant, bool ``[n]``.
    """
    halvings = np.arange((STARTS - 1) * STEPS + 1) / STEPS
    ranks = np.ceil(len(scores) / 2**halvings).astype(np.int64)
    curve = [
        CutoffPoint(
            score=float(score),
            answered=int((scores >= score).sum()),
            relevant=int(is_relevant[scores >= score].sum()),
        )
        for score in np.unique(np.sort(scores)[-ranks])
    ]
    record = CutoffRecord(queries=len(scores), curve=curve, cutoffs=[])
    chosen = [cutoff for target in PRECISIONS if (cutoff := record.cutoff(target)) is not None]
    return record.model_copy(update={"cutoffs": chosen})
