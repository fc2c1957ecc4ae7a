"""The guard's choice in plain words, for the command line, the report and the model card."""

from __future__ import annotations

from opera.core.intervals import FEW_QUERIES, points
from opera.runs.record import GuardedMeasure, GuardRecord

NEWER = 0.1
"""Test documents count as newer than dev's where train names a share of them that is smaller by more than this."""


def verdict_sentence(guard: GuardRecord) -> str:
    """Say whether the run was worth it, with the intervals."""
    if guard.verdict == "kept":
        change = f"{points(guard.dev.fine_tuned - guard.dev.before)} points on dev"
        if guard.test is not None:
            change += f", {points(guard.test.fine_tuned - guard.test.before)} on test"
        return f"worse: the untrained model is kept; fine-tuning changes {guard.measure} by {change}"
    word = "better" if guard.verdict == "better" else "not distinguishable"
    sentence = f"{word}: {guard.measure} {_difference(guard.dev, ' points on dev (95% interval ')}"
    return sentence if guard.test is None else f"{sentence}, {_difference(guard.test, ' on test (')}"


def gained(guard: GuardRecord | None) -> bool:
    """Whether a run was worth it: better on dev, and not certainly worse on test."""
    if guard is None or guard.verdict != "better":
        return False
    return guard.test is None or guard.test.high >= 0


def share_sentence(guard: GuardRecord) -> str:
    """Say what the model handed over is made of."""
    if guard.share == 0:
        return "The weights handed over are the untrained ones (share 0)."
    if guard.share == 1:
        return "The weights handed over are the fine-tuned ones (share 1)."
    return (
        f"The weights handed over are {100 * guard.share:g}% fine-tuned and {100 - 100 * guard.share:g}% untrained "
        f"(share {guard.share:g})."
    )


def dev_sentence(guard: GuardRecord) -> str:
    """Say what the share was chosen on, and how new its documents are beside those of test."""
    kind = "given with the data" if guard.dev_split == "given" else f"drawn from train, {guard.dev_split}"
    if guard.dev_documents is not None:
        kind += f"; ranked among {guard.dev_documents:,} documents"
    again = "; then trained again with them in train" if guard.refit else ""
    return (
        f"Chosen on {guard.dev_queries:,} dev queries ({kind}){again}. Train names {guard.dev_seen:.0%} of dev's "
        f"documents and {guard.test_seen:.0%} of test's."
    )


def warnings_of(guard: GuardRecord) -> list[str]:
    """List the reasons to trust the choice less."""
    found = []
    if guard.dev_seen - guard.test_seen > NEWER:
        found.append(
            f"warning: test documents are newer than dev's (train names {guard.test_seen:.0%} of them, and "
            f"{guard.dev_seen:.0%} of dev's), so dev may promise too much"
        )
    if guard.dev_queries < FEW_QUERIES:
        found.append(f"warning: {guard.dev_queries} dev queries are few to choose by; {FEW_QUERIES} or more are better")
    if guard.test is not None and guard.test.high < 0:
        promised = ", against what dev promised" if guard.dev.difference > 0 else ""
        found.append(f"warning: on test {guard.measure} fell{promised}")
    return found


def _difference(measured: GuardedMeasure, words: str) -> str:
    return f"{points(measured.difference)}{words}{points(measured.low)} to {points(measured.high)})"
