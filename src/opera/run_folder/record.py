"""The typed contents of ``run.json`` and ``measures.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    FiniteFloat,
)

from opera.core.errors import RunFolderError
from opera.core.terminal import shown
from opera.data.names import DataName, name_from_record
from opera.run_folder.cutoffs import CutoffRecord
from opera.run_folder.reading import RecordPart, read_model, read_object

FORMAT: Literal[9] = 9
"""Increased when a field changes its name or meaning. OPERA rejects runs of other formats."""


RecordedName = Annotated[DataName, BeforeValidator(name_from_record)]
"""The user's name for a data set. Records of older versions have tables as one string."""


class DataRecord(RecordPart):
    """The data set of a run.

    Attributes:
        source: the user's name for the data.
        fingerprint: SHA-256 of everything that was read, in hex.
        counts: documents, and queries and relevant pairs of each split.
        notes: what reading the data merged, dropped or split.
    """

    source: RecordedName
    fingerprint: str
    counts: dict[str, int]
    notes: list[str]


class ModelRecord(RecordPart):
    """The base model of a run.

    Attributes:
        source: the user's name for the model.
        fingerprint: SHA-256 of its weights and of everything else that decides an embedding.
        parameters: the number of parameters.
        head_of: the kind of the model that trained, if it adds a new head to the base model.
    """

    source: str
    fingerprint: str
    parameters: int
    head_of: str | None = None


class NegativesRecord(RecordPart):
    """The explicit negatives.

    Attributes:
        kind: ``none``, ``random``, ``labelled``, ``hard``, ``given``, ``teacher``, or a kind that a
            user registered.
        queries_without: queries with an empty list, which get random negatives; ``None`` without
            lists.
        listed: total length of the lists.
    """

    kind: str
    queries_without: int | None = None
    listed: int | None = None


class NoisyLabelsRecord(RecordPart):
    """How many training pairs look wrong by their first visits (docs/noisy-labels.md).

    Attributes:
        noise_rate: estimated fraction of the pairs that are wrong.
        low: lower end of its 95% interval.
        high: upper end.
        visited: pairs that were sampled; the rate uses the later half of them.
        suspicious: pairs in ``suspicious_pairs.csv``.
        pruned: pairs that were pruned before training; the rate does not include them.
        unvisited: other pairs that were never sampled; the rate includes them, the list does not.
    """

    noise_rate: float
    low: float
    high: float
    visited: int
    suspicious: int
    pruned: int = 0
    unvisited: int = 0


class TrainingRecord(RecordPart):
    """The record of a training.

    Attributes:
        steps: optimizer steps of all sessions.
        resumed_from: the step that the last session started from; 0 for a fresh start.
        best_step: step of the best evaluation on dev; ``None`` without evaluations.
        best_value: the measure at this step.
        evaluations: step and measure of each evaluation on dev.
        lag: steps between an observation and the first sample that uses it.
        measure: the name of the measure on dev.
    """

    steps: int
    resumed_from: int
    best_step: int | None
    best_value: float | None
    evaluations: list[tuple[int, float]]
    lag: int
    measure: str | None = None


class CurvePoint(RecordPart):
    """A point of the dev curve.

    Attributes:
        mixing_weight: λ, the weight of the fine-tuned parameters.
        mean: mean of the measure over the dev queries.
    """

    mixing_weight: float
    mean: float


class GuardedMeasure(RecordPart):
    """The measure of the base, the fine-tuned and the final model on a split.

    Attributes:
        queries: the number of queries.
        base: mean of the base model.
        fine_tuned: mean of the fine-tuned model, λ = 1; ``None`` if it was not measured.
        final: mean of the final model.
        difference: ``final`` minus ``base``.
        low: lower end of the difference's 95% interval, Student's t over the queries.
        high: upper end of the interval.
    """

    queries: int
    base: float
    fine_tuned: float | None
    final: float
    difference: float
    low: float
    high: float


class SecondTraining(RecordPart):
    """The second training, with the dev split in train, compared with the first, without it.

    Both are measured on dev at the λ that the first training chose.

    Attributes:
        trial: mean of the measure after the first training.
        second: mean of the measure after the second training, which has seen the dev queries.
        error: standard error of the mean difference.
        kept: whether the final model comes from the second training, because it is not worse by
            more than ``error``.
    """

    trial: float
    second: float
    error: float
    kept: bool


class GuardRecord(RecordPart):
    """The guard's choice, and the reasons.

    Attributes:
        mixing_weight: λ, the weight of the fine-tuned parameters in the final model.
        dev_verdict: ``better``: dev has 20 queries or more, and its interval is above 0;
            ``kept``: λ is 0, so the base model is the final model; ``same``: neither.
        measure: the measure that decides.
        expected_documents: the documents that future queries ask about. They decide how dev is
            split off and how λ is chosen.
        expected_documents_given: whether the user set them.
        dev_given: whether the dev split came with the data; else it was split off train.
        dev_queries: the number of dev queries.
        dev_documents: the number of documents in their ranking; ``None`` for the full corpus.
        dev_seen: fraction of dev's relevant pairs whose document occurs in train.
        test_seen: fraction of test's relevant pairs whose document occurs in train. Only
            ``like-test`` reads it, and nothing else of test; otherwise ``None``.
        curve: the measure on dev for every λ.
        dev: the measure on dev after the first training. ``final`` measures each half of the
            queries with the λ that the other half chooses.
        test: the measure on test of the models of ``measures.json``; ``None`` until it is
            measured.
        refit: whether the final model comes from a second training, with the dev split in train.
        second: the comparison of both trainings; ``None`` without a second training.
        dev_parts: for each of several data sets, or each kind of ``expected_documents=both``: the
            number of dev ``queries``, and their means ``base``, ``fine_tuned`` and ``final``.
    """

    mixing_weight: float = Field(ge=0, le=1)
    dev_verdict: Literal["better", "same", "kept"]
    measure: str
    expected_documents: str
    expected_documents_given: bool
    dev_given: bool
    dev_queries: int
    dev_documents: int | None = None
    dev_seen: float
    test_seen: float | None
    curve: list[CurvePoint]
    dev: GuardedMeasure
    test: GuardedMeasure | None = None
    refit: bool
    second: SecondTraining | None = None
    dev_parts: dict[str, dict[str, FiniteFloat]] | None = None


class KeywordsRecord(RecordPart):
    """Keyword search with the final model, measured on dev after the first training.

    Attributes:
        weights: w, the weight of keyword search in hybrid search, by the name of the data set.
        measure: the measure that decides.
        queries: the number of dev queries.
        bm25: mean of keyword search alone.
        final: mean of the model alone, with the λ that all dev queries choose.
        hybrid: mean of both together. Each half of the queries has the w that the other half
            chooses.
        low: lower end of the 95% interval of ``hybrid`` minus ``final``.
        high: upper end of the interval.
    """

    weights: dict[str, Annotated[FiniteFloat, Field(ge=0, le=1)]]
    measure: str
    queries: int
    bm25: float
    final: float
    hybrid: float
    low: float
    high: float


class SetRecord(RecordPart):
    """One of several data sets of a run.

    Attributes:
        name: the prefix of its ids.
        source: the user's name for the data set.
        fingerprint: SHA-256 of everything that was read of the data set, in hex.
        counts: documents, and queries and relevant pairs of each split.
        share_of_draws: its share of all sampled pairs; ``None`` until training is done.
        test: means over its test queries, by measure, for ``base``, ``fine_tuned`` and ``final``;
            ``None`` until they are measured, or without a test split.
    """

    name: str
    source: RecordedName
    fingerprint: str
    counts: dict[str, int]
    share_of_draws: float | None = None
    test: dict[str, dict[str, FiniteFloat]] | None = None


def mean_of_sets(sets: Sequence[SetRecord]) -> dict[str, dict[str, float]]:
    """Average the measures over the data sets of a finished run with a test split, at least one."""
    tests = [data_set.test for data_set in sets if data_set.test is not None]
    return {
        when: {name: sum(test[when][name] for test in tests) / len(tests) for name in values}
        for when, values in tests[0].items()
    }


class Measures(RecordPart):
    """``measures.json``: means over the test queries, by measure.

    Attributes:
        base: measures of the base model.
        fine_tuned: measures of the fine-tuned model; ``None`` if it was not measured, since it is
            not the final model and the corpus is large.
        final: measures of the final model.
    """

    base: dict[str, FiniteFloat]
    fine_tuned: dict[str, FiniteFloat] | None = None
    final: dict[str, FiniteFloat]


class RunMeasures(Measures):
    """``measures.json`` with keyword search.

    Attributes:
        bm25: measures of keyword search; ``None`` without it.
        hybrid: measures of keyword search with the final model; ``None`` without a weight.
    """

    bm25: dict[str, FiniteFloat] | None = None
    hybrid: dict[str, FiniteFloat] | None = None


class SizeRecord(Measures):
    """Measures on test with only the first dimensions of the embeddings.

    Attributes:
        size: the number of dimensions.
    """

    size: int


class RunRecord(RecordPart):
    """``run.json``.

    Attributes:
        format: :data:`FORMAT`.
        folder: the run folder; sources that are gone are looked up relative to it.
        status: ``running`` until the last measure is written, then ``finished``; ``failed`` after
            an error. A run that was killed, or stopped by Ctrl-C, stays ``running``.
        started: the first start of the run, UTC, ISO 8601.
        identity: facts that must not have changed when a run resumes: the user's settings, the
            number of processes, fingerprints of data and model.
        data: the data set.
        model: the base model.
        device: the device of the training.
        processes: the number of processes that train together.
        seed: the seed.
        settings: all settings, with automatic values resolved.
        versions: versions of Python and of the libraries that decide the result.
        seconds: duration of each phase, over all sessions.
        method: facts about the method on these data, such as how many pairs it kept.
        negatives: the explicit negatives.
        smallest_cbs_pool: the fewest documents among which CBS ranked a pair; ``None`` without CBS.
        noisy_labels: how many training pairs look wrong; ``None`` until training is done, or if too
            few pairs were sampled.
        training: the record of the training; ``None`` until it is done.
        guard: the λ that the guard chose, and why; ``None`` before, and with ``guard=false``.
        keywords: the weight of keyword search, and why; ``None`` without keyword search or guard.
        index: the size of the index of the base and the final model, by name; ``None`` for a dense
            model.
        matryoshka: measures of each size of the setting ``matryoshka``, the largest first; ``None``
            without the setting.
        sets: the record of each data set if there are several, else ``None``.
        cutoffs: the scores below which the final model should not answer; ``None`` until it is
            measured.
    """

    format: Literal[9] = FORMAT
    folder: str
    status: Literal["running", "failed", "finished"]
    started: str
    identity: dict[str, Any]
    data: DataRecord
    model: ModelRecord
    device: str
    processes: int
    seed: int
    settings: dict[str, Any]
    versions: dict[str, str]
    seconds: dict[str, float]
    method: dict[str, Any] = Field(default_factory=dict)
    negatives: NegativesRecord | None = None
    smallest_cbs_pool: int | None = None
    noisy_labels: NoisyLabelsRecord | None = None
    training: TrainingRecord | None = None
    guard: GuardRecord | None = None
    keywords: KeywordsRecord | None = None
    index: dict[str, dict[str, float]] | None = None
    matryoshka: list[SizeRecord] | None = None
    sets: list[SetRecord] | None = None
    cutoffs: CutoffRecord | None = None

    @property
    def data_sets(self) -> Sequence[DataRecord | SetRecord]:
        """The record of each data set, also if there is only one."""
        return self.sets or [self.data]

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read ``run.json``.

        Raises:
            RunFolderError: if the file is damaged, or another version of OPERA wrote it.
        """
        values = read_object(path)
        written, versions = values.get("format", 1), values.get("versions")
        if written != FORMAT:
            opera = versions.get("opera-retrieval") if isinstance(versions, dict) else None
            raise RunFolderError(
                f"{path}: has format {shown(written)}, and this version of OPERA reads only format "
                f"{FORMAT}; use OPERA {shown(opera)}, which wrote it, or train again with "
                "--overwrite"
            )
        return read_model(path, cls, values)


Opinion = Literal["wrong", "correct"] | None
"""A judge's opinion about a pair; ``None``: the judge cannot tell."""


class JudgeRecord(RecordPart):
    """The opinions of a judge about the items of a review.

    Attributes:
        judge: its name, and the host if it is a language model.
        opinions: by the id of the item.
    """

    judge: str
    opinions: dict[str, Opinion]

    def counts(self) -> dict[str, int]:
        """Return the number of items by opinion: ``wrong``, ``correct`` and ``none``."""
        opinions = Counter(self.opinions.values())
        return {name or "none": opinions[name] for name in ("wrong", "correct", None)}


class JudgeRecords(RecordPart):
    """The contents of ``judge.json``: the opinions about the labels of each split."""

    train: JudgeRecord | None = None
    test: JudgeRecord | None = None
