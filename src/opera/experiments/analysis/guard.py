"""What the guard chose for each method, and the models as fine-tuned beside those handed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opera.experiments.analysis.groups import PRIMARY, Group, MeanStd
from opera.experiments.analysis.significance import PairedTest, paired_tests_within
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.guard_words import verdict_sentence, warnings_of
from opera.runs.record import GuardRecord


@dataclass(frozen=True)
class GuardResult:
    """What the guard chose in the runs of one method.

    Attributes:
        shares: λ of each seed.
        verdicts: ``better``, ``same`` or ``kept`` of each seed.
        sentences: each seed's verdict in words, with its intervals on dev and test.
        measure: the measure that decides.
        curves: of each seed, share and mean of the measure on dev.
        typical: the record of the first seed with the means over the seeds: shares of documents that train names, and
            the fewest dev queries.
        warnings: reasons to trust the choice less.
        fine_tuned: each measure of the fine-tuned models, λ = 1.
        against_fine_tuned: nDCG@10 of the models handed over against the fine-tuned ones, Holm-corrected over the
            methods; ``None`` with fewer than two test queries.
    """

    shares: tuple[float, ...]
    verdicts: tuple[str, ...]
    sentences: tuple[str, ...]
    measure: str
    curves: tuple[tuple[tuple[float, float], ...], ...]
    typical: GuardRecord
    warnings: tuple[str, ...]
    fine_tuned: dict[str, MeanStd]
    against_fine_tuned: PairedTest | None


def guard_results(groups: Sequence[Group]) -> dict[str, GuardResult]:
    """Collect the guard's choices by label. Groups with a run without a guard are left out.

    Args:
        groups: methods on the same data with the same steps.
    """
    records = {group.method: found for group in groups if (found := _records(group))}
    guarded = [group for group in groups if group.method in records]
    against_fine_tuned = paired_tests_within(guarded, PRIMARY, "after", "fine_tuned")
    return {
        group.method: _result(group, records[group.method], against_fine_tuned.get(group.method))
        for group in guarded
    }


def format_verdicts(verdicts: Sequence[str]) -> str:
    """Format the verdicts of the seeds: ``better``, or ``2 better, 1 same``."""
    counts = Counter(verdicts)
    return (
        verdicts[0]
        if len(counts) == 1
        else ", ".join(f"{count} {name}" for name, count in counts.most_common())
    )


def _records(group: Group) -> list[GuardRecord]:
    """What the guard chose for each seed; empty if a run has no guard."""
    records = [run.record.guard for run in group.runs if run.record.guard is not None]
    return records if len(records) == len(group.runs) else []


def _result(
    group: Group, records: Sequence[GuardRecord], against: PairedTest | None
) -> GuardResult:
    means = {
        "dev_queries": min(record.dev_queries for record in records),
        "dev_seen": float(np.mean([record.dev_seen for record in records])),
    }
    if all(record.test_seen is not None for record in records):
        means["test_seen"] = float(np.mean([record.test_seen for record in records]))
    # the test of several seeds is that of their means, so no single seed's is warned about
    alone = {} if len(records) == 1 else {"test": None, "second": None, "dev_parts": None}
    typical = records[0].model_copy(update={**means, **alone})
    return GuardResult(
        shares=tuple(record.share for record in records),
        verdicts=tuple(record.verdict for record in records),
        sentences=tuple(map(verdict_sentence, records)),
        measure=records[0].measure,
        curves=tuple(
            tuple((point.share, point.mean) for point in record.curve) for record in records
        ),
        typical=typical,
        warnings=tuple(warnings_of(typical)),
        fine_tuned={measure: group.mean_std(measure, "fine_tuned") for measure in DEFAULT_MEASURES},
        against_fine_tuned=against,
    )
