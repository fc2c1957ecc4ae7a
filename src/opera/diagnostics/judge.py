"""Let a judge, a cross-encoder or a language model, suggest decisions about a review.

A person accepts or rejects the suggestions. Before that, neither training nor the estimate of noisy
labels reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opera.core.arguments import expand_user, flag, whole_number
from opera.core.arrays import FloatArray
from opera.core.errors import ModelError, SettingError, raise_first
from opera.core.files import check_folder
from opera.core.progress import progress
from opera.core.terminal import log, shown
from opera.diagnostics.language_model import OPINIONS, PREFIX, LanguageModel
from opera.labels.estimate import SUSPICIOUS
from opera.labels.review import Item
from opera.run_folder.folder import JUDGE_FILE, Run, RunWriter
from opera.run_folder.record import JudgeRecord, Opinion

JUDGE_PAIRS = 500
"""A judge reads at most this many pairs by default."""
REFERENCE, FEWEST = 100, 20
"""Most and fewest pairs that training trusts, and that it doubts, for the thresholds."""
UNUSUAL = 0.1
"""This fraction of the trusted pairs scores below one threshold, and of the doubted above one."""
BATCH = 64
"""Pairs per step of the progress bar."""


class JudgeOptions(NamedTuple):
    """Which judge, and how it judges.

    Attributes:
        name: a cross-encoder's folder or hub id, or ``openai:`` and a model.
        pairs: the maximum number of pairs.
        thresholds: scores up to the first mean wrong, from the second on correct; ``None`` for
            those of :func:`score_thresholds`.
        yes: whether to send texts without a question.
    """

    name: str
    pairs: int
    thresholds: tuple[float, float] | None
    yes: bool


def judge_options(
    judge: str | Path | None, pairs: int, thresholds: object, yes: bool
) -> JudgeOptions | None:
    """Check the options of a judge; ``None`` without a judge.

    Raises:
        SettingError: for an option out of range, or without a judge.
    """
    pairs, yes = whole_number(pairs, "judge_pairs", 1), flag(yes, "yes")
    if judge is not None:
        read = None if thresholds is None else read_thresholds(thresholds)
        return JudgeOptions(str(judge), pairs, read, yes)
    raise_first(
        SettingError,
        (pairs != JUDGE_PAIRS, "--judge-pairs: needs --judge"),
        (thresholds is not None, "--judge-thresholds: needs --judge"),
        (yes, "--yes: needs --judge"),
    )
    return None


def ask_judge(run: Run, split: str, items: Sequence[Item], options: JudgeOptions) -> JudgeRecord:
    """Ask about items of a review, in their order, and save the opinions in the run.

    Raises:
        SettingError: if options do not fit together, or the user does not agree to send texts.
        ModelError: if the judge cannot be loaded, or does not separate trusted from doubted pairs.
        RunFolderError: if the run's folder cannot be written to.
    """
    check_folder(run.path, "RUN")
    pairs = [item for item in items if item["list"] != "changed"][: options.pairs]
    if options.name.startswith(PREFIX):
        return _ask_language_model(run, split, pairs, options)
    from opera.retrieval.reranker import open_reranker

    reranker = open_reranker(expand_user(options.name, "--judge"))
    low, high = options.thresholds or _thresholds(run, reranker, options.name)
    scores = _scores(reranker, pairs)
    log.info("%s: a score up to %.4g means wrong, from %.4g correct", options.name, low, high)
    opinions: dict[str, Opinion] = {
        item["id"]: "wrong" if score <= low else "correct" if score >= high else None
        for item, score in zip(pairs, scores.tolist(), strict=True)
    }
    return _save(run, split, JudgeRecord(judge=options.name, opinions=opinions))


def _ask_language_model(
    run: Run, split: str, pairs: Sequence[Item], options: JudgeOptions
) -> JudgeRecord:
    """Ask about the pairs without a saved answer of this model. An error keeps the answers."""
    if options.thresholds is not None:
        raise SettingError(f"--judge-thresholds: a language model has no scores: {options.name}")
    judge, known = LanguageModel(options.name), run.judge(split)
    opinions = dict(known.opinions) if known is not None and known.judge == judge.name else {}
    open_pairs = [item for item in pairs if item["id"] not in opinions]
    nonsense = 0
    if open_pairs:
        judge.confirm(open_pairs, options.yes)
    try:
        for item, answer in zip(open_pairs, judge.ask(open_pairs), strict=True):
            if answer not in OPINIONS:
                nonsense += 1
            else:
                opinions[item["id"]] = OPINIONS[answer]
    finally:
        record = _save(run, split, JudgeRecord(judge=judge.name, opinions=opinions), nonsense)
    return record


def _save(run: Run, split: str, record: JudgeRecord, nonsense: int = 0) -> JudgeRecord:
    """Write the opinions next to those about the other split, and report their numbers. Without an
    opinion, the file stays: it may hold answers of another judge.
    """
    if record.opinions:
        other = "test" if split == "train" else "train"
        records = {split: record, other: run.judge(other)}
        values = {name: each.model_dump() for name, each in records.items() if each is not None}
        RunWriter(run.path).write_json(JUDGE_FILE, values)
    counts = record.counts()
    log.info(
        "%s: %s wrong, %s correct, no opinion about %s%s",
        *(record.judge, counts["wrong"], counts["correct"], counts["none"] + nonsense),
        f" ({nonsense} of them because the answer was none of the three words)" if nonsense else "",
    )
    return record


def _scores(reranker: Any, items: Sequence[Item]) -> FloatArray:
    reranker.model.to(reranker.device)
    scores = [np.empty(0, dtype=np.float32)]
    with progress("judging", len(items), "pairs") as bar:
        for start in range(0, len(items), BATCH):
            batch = items[start : start + BATCH]
            texts = [[item[name] for item in batch] for name in ("query", "document")]
            scores.append(reranker.score(*texts))
            bar.update(len(batch))
    return np.concatenate(scores)


def _thresholds(run: Run, reranker: Any, name: str) -> tuple[float, float]:
    """Compute thresholds from the pairs of the review that training trusts and doubts most.

    Raises:
        SettingError: if there are too few such pairs.
        ModelError: if the judge's scores do not separate them.
    """
    probabilities = _probabilities(run)
    items = run.review()["train"]["pairs"]
    keys = [(item["query_id"], item["doc_id"]) for item in items]
    known = [
        (probabilities[key], item)
        for key, item in zip(keys, items, strict=True)
        if key in probabilities
    ]
    known.sort(key=itemgetter(0))
    trusted = [item for probability, item in known if probability < SUSPICIOUS][:REFERENCE]
    doubted = [item for probability, item in known if probability > SUSPICIOUS][-REFERENCE:]
    if min(len(trusted), len(doubted)) < FEWEST:
        raise SettingError(
            f"--judge {name}: thresholds need {FEWEST} pairs that training trusts and {FEWEST} "
            f"that it doubts, but the review has {len(trusted)} and {len(doubted)}; pass "
            "--judge-thresholds LOW:HIGH"
        )
    scores = _scores(reranker, trusted), _scores(reranker, doubted)
    if np.median(scores[0]) <= np.median(scores[1]):
        raise ModelError(
            f"--judge {name}: scores pairs that training trusts no higher than pairs that it "
            "doubts; pass another model, or --judge-thresholds LOW:HIGH"
        )
    return score_thresholds(*scores)


def _probabilities(run: Run) -> dict[tuple[str, str], float]:
    """Return the probability of each training pair to be wrong by its ids, if it is estimated."""
    table = run.pairs()
    if "probability_wrong" not in table.column_names:
        return {}
    query_ids, doc_ids, values = (
        table[name].to_pylist() for name in ("query_id", "doc_id", "probability_wrong")
    )
    rows = zip(query_ids, doc_ids, values, strict=True)
    return {(query_id, doc_id): value for query_id, doc_id, value in rows if value is not None}


def score_thresholds(trusted: FloatArray, doubted: FloatArray) -> tuple[float, float]:
    """Return the score up to which a pair is wrong, and the one from which it is correct.

    Few of the pairs that training trusts score below the first, and few of those that it doubts
    score above the second. If the scores separate both groups, pairs in the gap get no opinion.

    Args:
        trusted: float ``[m]``, scores of pairs that are very probably correct.
        doubted: float ``[n]``, scores of pairs that are very probably wrong.
    """
    ends = float(np.quantile(trusted, UNUSUAL)), float(np.quantile(doubted, 1 - UNUSUAL))
    return min(ends), max(ends)


def read_thresholds(value: Any) -> tuple[float, float]:
    """Read ``LOW:HIGH``, or a pair of numbers.

    Raises:
        SettingError: for anything else, and if the first is above the second.
    """
    try:
        low, high = map(float, value.split(":") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise SettingError(
            f"--judge-thresholds: must be LOW:HIGH, such as -2.5:1, got {shown(value)}"
        )
    return low, high
