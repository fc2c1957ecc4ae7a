"""The guard's verdict in words, for the command line, the report and the model card."""

from __future__ import annotations

from opera.core.intervals import FEW_QUERIES, LEAST_QUERIES, points
from opera.runs.record import GuardedMeasure, GuardRecord

NEWER = 0.1
"""The dev split is too old if train names more of its documents than of test's, by this share."""


def verdict_sentence(guard: GuardRecord) -> str:
    """Say whether the run was worth it, with the intervals on dev and on test."""
    words = verdict_words(guard)
    if guard.verdict == "kept":
        changes = [f"{points(guard.dev.fine_tuned - guard.dev.before)} points on dev"]
        if guard.test is not None:
            changes.append(f"{points(guard.test.fine_tuned - guard.test.before)} on test")
        return (
            f"{words}: the untrained model is kept; fine-tuning changes {guard.measure} by "
            f"{', '.join(changes)}"
        )
    changes = [_difference(guard.dev, " points on dev", "95% interval ")]
    if guard.test is not None:
        changes.append(_difference(guard.test, " on test"))
    return f"{words}: {guard.measure} {', '.join(changes)}"


def verdict_words(guard: GuardRecord) -> str:
    """The verdict in a few words; ``better`` where both dev and test say it."""
    if guard.dev_queries < LEAST_QUERIES:
        return f"dev cannot tell ({guard.dev_queries} of {LEAST_QUERIES} queries that it takes)"
    if guard.verdict == "kept":
        return "worse" if guard.dev.fine_tuned < guard.dev.before else "no sure gain on dev"
    if guard.verdict == "same":
        return "not distinguishable on dev"
    if guard.test is None:
        return "better on dev"
    if guard.test.queries < LEAST_QUERIES or guard.test.low <= 0 <= guard.test.high:
        return "better on dev; test cannot tell"
    return "better" if guard.test.low > 0 else "better on dev, worse on test"


def gained(guard: GuardRecord | None) -> bool:
    """Whether a run was worth it: better on dev and on test."""
    return guard is not None and verdict_words(guard) == "better"


def mixture(share: float) -> str:
    """Say what the weights of a model of a share λ are."""
    if share in (0, 1):
        return "the fine-tuned model" if share else "the base model"
    return f"{100 * share:g}% fine-tuned and {100 * (1 - share):g}% base weights"


def share_sentence(guard: GuardRecord) -> str:
    """Say what the final model is."""
    return f"The final model is {mixture(guard.share)} (λ = {guard.share:g})."


def dev_sentence(guard: GuardRecord) -> str:
    """Say on which queries λ was chosen, and how much of their documents train names."""
    origin = "given with the data" if guard.dev_given else "drawn from train"
    if guard.dev_documents is not None:
        origin += f"; ranked among {guard.dev_documents:,} documents"
    assumed = "" if guard.future_given else ", assumed"
    text = (
        f"λ was chosen on {guard.dev_queries:,} dev queries ({origin}) for --future "
        f"{guard.future}{assumed}. Training pairs name {guard.dev_seen:.0%} of dev's documents"
    )
    text += "." if guard.test_seen is None else f" and {guard.test_seen:.0%} of test's."
    if guard.future == "both":
        changes = (
            f"{points(part['after'] - part['before'])} points ({part['queries']:,.0f} about {name})"
            for name, part in (guard.dev_parts or {}).items()
        )
        text += f" By kind of dev query: {', '.join(changes)}."
    if (second := guard.second) is not None:
        scores = f"{second.second:.3f} on dev after the second training, {second.trial:.3f} before"
        chosen = (
            "comes from a second training on train and dev"
            if second.kept
            else ("comes from the first training, because a second one on train and dev was worse")
        )
        text += f" The final model {chosen} ({scores})."
    return text


def warnings_of(guard: GuardRecord) -> list[str]:
    """List the reasons to trust the choice less."""
    warnings = []
    tomorrow = 0.0 if guard.future == "new-documents" else guard.test_seen
    if tomorrow is not None and guard.dev_seen - tomorrow > NEWER:
        whose = "test" if guard.test_seen is not None else "tomorrow's"
        warnings.append(
            f"warning: {whose} documents are newer than dev's (train has {tomorrow:.0%} of them, "
            f"and {guard.dev_seen:.0%} of dev's), so dev may promise too much"
        )
    if guard.future == "both" and len(guard.dev_parts or ()) < 2:
        only = ", ".join(guard.dev_parts or ("no queries",))
        warnings.append(
            f"warning: dev holds queries about {only} alone, so it says nothing of the other half"
        )
    if guard.dev_queries < FEW_QUERIES:
        warnings.append(
            f"warning: {guard.dev_queries} dev queries are few to choose by; {FEW_QUERIES} or "
            "more are better"
        )
    if guard.test is not None and guard.test.high < 0:
        promised = ", against what dev promised" if guard.dev.difference > 0 else ""
        warnings.append(f"warning: on test {guard.measure} fell{promised}")
    return warnings


def _difference(measured: GuardedMeasure, where: str, interval: str = "") -> str:
    change = f"{points(measured.difference)}{where}"
    if measured.queries < LEAST_QUERIES:
        return change
    return f"{change} ({interval}{points(measured.low)} to {points(measured.high)})"
