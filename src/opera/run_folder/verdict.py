"""A run in words: was it worth it, what is its final model, what does keyword search add?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opera.core.figures import FEW_QUERIES, LEAST_QUERIES, PRIMARY, in_points, points
from opera.core.terminal import counted
from opera.run_folder.record import GuardRecord, NoisyLabelsRecord
from opera.run_folder.summary import RunSummary, verdict_of

NEWER = 0.1
"""If the fraction of documents in train is higher for dev than for test by more, OPERA warns."""
MANY_VISITS = 2000
"""With fewer visits the model has learnt little when it ranks a pair, so correct pairs look wrong
too."""


def headlines(summary: RunSummary) -> list[str]:
    """Say whether a run was worth it, what its final model is, and what keyword search adds.

    If keyword search is better than the final model, that comes first.
    """
    guard, queries = summary.record.guard, counted(summary.queries, "test query")
    means = {model: values[PRIMARY] for model, values in summary.measures.items()}
    if guard is not None:
        lines = [f"{verdict_sentence(guard)}.", f"{weight_sentence(guard)}."]
    else:
        base, final = means["base"], means["final"]
        lines = [
            f"{_change(PRIMARY, base, final, final - base)} on {queries}.",
            "The final model: the fine-tuned weights; the guard is off.",
        ]
    if summary.bm25 is None:
        return lines
    if summary.bm25_is_better:
        lines.insert(
            0,
            f"Keyword search (BM25) alone is better than the final model: {PRIMARY} "
            f"{in_points(means['bm25'])} against {in_points(means['final'])} on {queries}.",
        )
    return [*lines, _keyword_sentence(summary, means)]


def _keyword_sentence(summary: RunSummary, means: Mapping[str, float]) -> str:
    """Say what keyword search adds to the final model on test."""
    alone = f"BM25 alone: {in_points(means['bm25'])}"
    keywords = summary.record.keywords
    if keywords is None or summary.hybrid is None:
        return f"{alone}."
    if not any(keywords.weights.values()):
        return f"With keyword search: no gain on dev, so its weight is 0; {alone}."
    weights = ", ".join(
        f"{weight:g}" + f" for {name}" * (len(keywords.weights) > 1)
        for name, weight in keywords.weights.items()
    )
    advice = "; search with both, or try a larger base model" if summary.bm25_is_better else ""
    return (
        f"With keyword search (w = {weights}): {PRIMARY} {in_points(means['hybrid'])}, "
        f"{summary.hybrid.in_points()} against the final model; {alone}{advice}."
    )


def verdict_sentence(guard: GuardRecord) -> str:
    """Say in one sentence whether the run was worth it, without the full stop."""
    keeps_base = guard.dev_verdict == "kept"
    # with the base weights, the final model is equal to the base model on test
    measured = guard.dev if keeps_base or guard.test is None else guard.test
    changed = measured.fine_tuned if keeps_base else measured.final
    difference = changed - measured.base if keeps_base else measured.difference
    interval = f", 95% interval {points(measured.low)} to {points(measured.high)}"
    if keeps_base or measured.queries < LEAST_QUERIES:
        interval = ""
    change = _change(guard.measure, measured.base, changed, difference, interval)
    words, split = verdict_of(guard), "dev" if measured is guard.dev else "test"
    text = f"{words}: fine-tuning changes {change}" if keeps_base else f"{words}: {change}"
    return f"{text[0].upper()}{text[1:]} on {counted(measured.queries, f'{split} query')}"


def _change(
    measure: str, before: float, after: float, difference: float, interval: str = ""
) -> str:
    values = f"{measure} {in_points(before)} -> {in_points(after)}"
    return f"{values} ({points(difference)}{interval})"


def weight_sentence(guard: GuardRecord) -> str:
    """Say what the weights of the final model are, and on how many queries they were chosen."""
    weight, queries = guard.mixing_weight, counted(guard.dev_queries, "dev query")
    mixture = f"{100 * weight:g}% fine-tuned, {100 * (1 - weight):g}% base weights"
    weights = {0.0: "the base weights", 1.0: "the fine-tuned weights"}.get(weight, mixture)
    return f"The final model: {weights} (λ = {weight:g}), chosen on {queries}"


def dev_sentence(guard: GuardRecord) -> str:
    """Say on which queries λ was chosen, and how many of their documents train knows."""
    origin = "given with the data" if guard.dev_given else "split off train"
    if guard.dev_documents is not None:
        origin += f"; ranked among {counted(guard.dev_documents, 'document')}"
    assumed = "" if guard.expected_documents_given else ", assumed"
    text = (
        f"λ was chosen on {counted(guard.dev_queries, 'dev query')} ({origin}) for "
        f"--expected-documents {guard.expected_documents}{assumed}. "
        f"Train contains {guard.dev_seen:.0%} of dev's documents"
    )
    text += "." if guard.test_seen is None else f" and {guard.test_seen:.0%} of test's."
    if guard.expected_documents == "both":
        changes = (
            f"{points(part['final'] - part['base'])} points ({part['queries']:,.0f} about {name})"
            for name, part in (guard.dev_parts or {}).items()
        )
        text += f" By kind of dev query: {', '.join(changes)}."
    return text


def warnings_of(guard: GuardRecord) -> Iterator[str]:
    """List the reasons to trust the choice less."""
    expected_seen = 0.0 if guard.expected_documents == "new" else guard.test_seen
    if expected_seen is not None and guard.dev_seen - expected_seen > NEWER:
        documents = "test" if guard.test_seen is not None else "future"
        yield (
            f"warning: {documents} documents are newer than dev's (train has "
            f"{expected_seen:.0%} of them, and {guard.dev_seen:.0%} of dev's), so the scores on "
            "dev may be too high"
        )
    if guard.expected_documents == "both" and len(guard.dev_parts or ()) < 2:
        parts = ", ".join(guard.dev_parts or ("no documents",))
        yield (f"warning: dev has queries only about {parts}, so it cannot tell for the other kind")
    if guard.dev_queries < FEW_QUERIES:
        yield (
            f"warning: {counted(guard.dev_queries, 'dev query')} "
            f"{'is' if guard.dev_queries == 1 else 'are'} few to choose by; {FEW_QUERIES} or more "
            "are better"
        )
    if guard.test is not None and guard.test.high < 0:
        contrast = ", although it rose on dev" if guard.dev.difference > 0 else ""
        yield f"warning: {guard.measure} fell on test{contrast}"


def labels_sentence(estimate: NoisyLabelsRecord) -> str:
    """Say how many training pairs look wrong, without the final full stop."""
    too_high = "" if estimate.visited >= MANY_VISITS else ", probably too high"
    digits = 0 if estimate.high >= 0.1 else 1  # so that a small rate is not "0% to 0%"
    text = (
        f"About {estimate.noise_rate:.{digits}%} of the training pairs look wrong "
        f"({estimate.low:.{digits}%} to {estimate.high:.{digits}%}{too_high})"
    )
    if estimate.pruned:
        text += f", not counting {counted(estimate.pruned, 'pruned pair')}"
    if estimate.unvisited:
        text += f"; {counted(estimate.unvisited, 'pair')} never sampled and not judged"
    return text
