"""The guard's choice in plain words, for the command line, the report and the model card."""

from __future__ import annotations

from opera.core.intervals import FEW_QUERIES, LEAST_QUERIES, points
from opera.runs.record import GuardedMeasure, GuardRecord

NEWER = 0.1
"""By how much more of dev's documents than of tomorrow's train has, for these to be newer."""
FUTURES = {
    "same-documents": "about the documents of the training pairs",
    "new-documents": "about new documents",
    "both": "about the documents of the training pairs and about new ones",
    "like-test": "about documents as new as those of test",
}
EXPECTED = (
    (0.9, "what to expect of known documents"),
    (0.1, "what to expect where as many are known"),
    (0.0, "what to expect of new documents"),
)
"""What dev shows, from which share of documents on that training had seen."""
PARTS = {
    0.125: "an eighth",
    0.25: "a quarter",
    0.375: "three eighths",
    0.5: "half",
    0.625: "five eighths",
    0.75: "three quarters",
    0.875: "seven eighths",
}


def verdict_sentence(guard: GuardRecord) -> str:
    """Say whether the run was worth it, with the intervals, and no more than dev and test say."""
    if guard.verdict == "kept":
        change = f"{points(guard.dev.fine_tuned - guard.dev.before)} points on dev"
        if guard.test is not None:
            change += f", {points(guard.test.fine_tuned - guard.test.before)} on test"
        kept = "the untrained model is kept; fine-tuning changes"
        return f"{verdict_words(guard)}: {kept} {guard.measure} by {change}"
    dev = _difference(guard.dev, " points on dev (95% interval ")
    test = "" if guard.test is None else f", {_difference(guard.test, ' on test (')}"
    return f"{verdict_words(guard)}: {guard.measure} {dev}{test}"


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
    """Say what the model of a share λ is made of."""
    if share in (0, 1):
        return "the fine-tuned one" if share else "the untrained one"
    tuned, untrained = (PARTS.get(part, f"{part:.1%}") for part in (share, 1 - share))
    return f"{tuned} fine-tuned, {untrained} as it came"


def share_sentence(guard: GuardRecord) -> str:
    """Say what the model handed over is made of."""
    safer = ", which is safer on new documents" if 0 < guard.share < 1 else ""
    return f"The model handed over is {mixture(guard.share)} (share {guard.share:g}){safer}."


def dev_sentence(guard: GuardRecord) -> str:
    """Say what the share was chosen on, for which queries, and what was read of test."""
    kind = "given with the data" if guard.dev_given else "drawn from train"
    if guard.dev_documents is not None:
        kind += f"; ranked among {guard.dev_documents:,} documents"
    assumed = "" if guard.future_given else ", assumed"
    expected = next(words for least, words in EXPECTED if guard.dev_seen >= least)
    text = (
        f"The share was chosen on {guard.dev_queries:,} dev queries ({kind}), for queries "
        f"{FUTURES[guard.future]} (--future {guard.future}{assumed}). The models "
        f"measured had seen {guard.dev_seen:.0%} of dev's documents, so dev shows {expected}; "
    )
    if guard.test_seen is None:
        text += "nothing was read of test."
    else:
        text += f"train has {guard.test_seen:.0%} of test's, which is all that was read of test."
    if guard.future == "both":
        changes = (
            f"{points(part['after'] - part['before'])} points on {part['queries']:,.0f} "
            f"about {name}"
            for name, part in (guard.dev_parts or {}).items()
        )
        text += f" Of the dev queries: {', '.join(changes)}."
    if (second := guard.second) is not None:
        both = f"{second.second:.3f} on dev, which it knows; the first {second.trial:.3f}"
        text += (
            " The model handed over was then trained anew, with dev's queries too, and has seen "
            f"all of dev's documents ({both})."
            if second.kept
            else f" A second training, with dev's queries too, fell behind ({both}), so the first "
            "is handed over."
        )
    return text


def warnings_of(guard: GuardRecord) -> list[str]:
    """List the reasons to trust the choice less."""
    found = []
    tomorrow = 0.0 if guard.future == "new-documents" else guard.test_seen
    if tomorrow is not None and guard.dev_seen - tomorrow > NEWER:
        whose = "test" if guard.test_seen is not None else "tomorrow's"
        found.append(
            f"warning: {whose} documents are newer than dev's (train has {tomorrow:.0%} of them, "
            f"and {guard.dev_seen:.0%} of dev's), so dev may promise too much"
        )
    if guard.future == "both" and len(guard.dev_parts or ()) < 2:
        only = ", ".join(guard.dev_parts or ("no queries",))
        found.append(
            f"warning: dev holds queries about {only} alone, so it says nothing of the other half"
        )
    if guard.dev_queries < FEW_QUERIES:
        found.append(
            f"warning: {guard.dev_queries} dev queries are few to choose by; {FEW_QUERIES} or "
            "more are better"
        )
    if guard.test is not None and guard.test.high < 0:
        promised = ", against what dev promised" if guard.dev.difference > 0 else ""
        found.append(f"warning: on test {guard.measure} fell{promised}")
    return found


def _difference(measured: GuardedMeasure, words: str) -> str:
    if measured.queries < LEAST_QUERIES:
        return points(measured.difference) + words.partition(" (")[0]
    return f"{points(measured.difference)}{words}{points(measured.low)} to {points(measured.high)})"
