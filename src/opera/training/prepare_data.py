"""Check that data and settings fit together, and add missing splits. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from opera.config.negatives import RANDOM_KINDS, MixingSettings, shares_by_name
from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.arrays import distinct_numbers, is_among
from opera.core.errors import DataError, SettingError, raise_first
from opera.core.terminal import shown
from opera.data import Mixture, RetrievalData
from opera.data.copies import (
    copy_notes,
    merge_copies,
    text_keys,
)
from opera.data.decisions import with_decisions
from opera.data.list_matching import with_teacher
from opera.data.retrieval_data import with_relevant_grade
from opera.data.splits import (
    ExpectedDocuments,
    assumed_documents,
    draw_missing_splits,
    known_documents,
    known_fraction,
    queries_per_document,
)
from opera.methods.denoise import Denoise
from opera.retrieval.measures import parse_measures
from opera.training.negatives import check_negatives

POPULAR = 0.2
"""A document that is relevant to a larger fraction of the training queries is popular."""


@dataclass(frozen=True)
class RunData:
    """The data of a run.

    Attributes:
        with_splits: the data with all splits, for training and evaluation. Grades below
            ``relevant_grade`` are 0.
        before_dev: the data before the dev queries left train; ``with_splits`` if none left.
        expected_documents: the documents that future queries ask about; ``None`` for a run without
            a dev split.
        negatives: the kind of explicit negatives.
        all_queries: the number of training queries before dev and decisions removed any.
    """

    with_splits: Mixture
    before_dev: Mixture
    expected_documents: ExpectedDocuments | None
    negatives: str
    all_queries: int

    @property
    def dev_drawn(self) -> bool:
        """Whether the dev queries come from train."""
        return self.before_dev is not self.with_splits

    @property
    def known_on_dev(self) -> float:
        """The fraction of dev's relevant documents that are in train; 1 without a dev split."""
        if self.expected_documents is None:
            return 1.0
        return known_fraction(self.with_splits.joined, "dev")

    @property
    def with_dev_restored(self) -> Mixture:
        """The data of a second training, with the dev queries back in train.

        Popular documents that left train stay out. Otherwise they could rank first for every query
        after the second training, and dev would not show it, because its queries train too.
        """

        def restore(before_dev: RetrievalData, with_splits: RetrievalData) -> RetrievalData:
            positive = before_dev.training_split()
            popular = queries_per_document(before_dev, positive) > POPULAR * positive.n_queries
            popular &= ~known_documents(before_dev, with_splits.split("train"))[positive.doc_rows]
            return before_dev.hold_out_pairs(positive.select_judgements(popular))

        return self.before_dev.map(restore, self.with_splits)

    @property
    def lost_to_dev(self) -> float:
        """The fraction of train that moved to dev, in queries or in pairs, whichever is larger."""
        left, train = (
            mixture.joined.training_split() for mixture in (self.with_splits, self.before_dev)
        )
        return 1 - min(left.n_queries / train.n_queries, len(left.doc_rows) / len(train.doc_rows))


def prepare_data(mixture: Mixture, recipe: Recipe) -> RunData:
    """Add missing splits, apply decisions about labels, and check the data; write nothing.

    Raises:
        InputError: if the data lack something, or a setting does not fit them.
    """
    settings, corpus = recipe.train, mixture.joined.corpus
    if len(corpus.empty_rows(settings.corpus_text)) == len(corpus):
        raise DataError(
            f"{mixture.joined.title}: no document has a text with "
            f"corpus_text={settings.corpus_text}; use title_text"
        )
    if settings.teacher_scores is not None:
        mixture = with_teacher(mixture, Path(settings.teacher_scores))
    negatives = settings.negatives or automatic_negatives(mixture.joined, settings)
    data = _with_splits(mixture, settings, negatives)
    for data_set in data.with_splits.data_sets:
        train = data_set.training_split()
        recipe.method_class.check(recipe.method_settings, train.n_queries, len(train.doc_rows))
    raise_first(SettingError, *_conflicts(data.with_splits, recipe, negatives))
    check_negatives(negatives, data.with_splits.joined, settings)
    return data


def automatic_negatives(data: RetrievalData, settings: TrainSettings) -> str:
    """Return the automatic kind of negatives; ``random`` for either kind of random negatives."""
    if settings.n_negatives == 0:
        return "none"
    scored = settings.loss == "distill" and data.teacher is not None
    if scored and settings.teacher_scores is not None:
        return "teacher"  # distillation needs negatives with teacher scores
    if data.given_negatives is not None:
        return "given"
    return "teacher" if scored else "random"


def _conflicts(mixture: Mixture, recipe: Recipe, negatives: str) -> list[tuple[bool, str]]:
    """List each possible conflict of settings and data: whether it exists, and the message."""
    settings, denoises = recipe.train, issubclass(recipe.method_class, Denoise)
    data, use, path = mixture.joined, settings.pair_weights, settings.teacher_scores
    distills, default = settings.loss == "distill", TrainSettings.model_fields["distill_weight"]
    return [
        *_mixing_conflicts(mixture, settings),
        (
            use != "none" and data.training_split().weights is None,
            f"pair_weights={use}: {shown(data.title)} has no column with weights; remove the "
            "setting",
        ),
        (
            path is not None and negatives != "teacher" and settings.loss == "infonce",
            f"teacher_scores={path}: no setting uses them; pass loss=distill, or negatives=teacher",
        ),
        (
            settings.loss == "infonce" and settings.distill_weight != default.default,
            f"distill_weight={settings.distill_weight}: has no effect without loss=distill",
        ),
        (
            negatives != "none" and settings.n_negatives == 0,
            f"negatives={negatives}: train_group_size=1 leaves no room for negatives; pass "
            "train_group_size=2 or more",
        ),
        (
            settings.negatives == "none" and settings.train_group_size > 2,
            f"train_group_size={settings.train_group_size}: has no effect with negatives=none; "
            "remove one of the two settings",
        ),
        (
            distills and data.teacher is None,
            f"loss=distill: {data.title} has no teacher scores; write some with opera score "
            "DATA --reranker MODEL --out scores.parquet, and pass them with --teacher",
        ),
        (
            distills and settings.n_negatives == 0,
            "loss=distill: needs negatives to compare the positive with; remove negatives=none, "
            "and pass train_group_size=2 or more",
        ),
        (
            settings.passages is not None and denoises and negatives not in RANDOM_KINDS,
            f"passages={settings.passages}: method {recipe.method} compares labels with random "
            f"documents, but negatives is {negatives}; pass --method ft, or --negatives random",
        ),
    ]


def _mixing_conflicts(mixture: Mixture, settings: TrainSettings) -> list[tuple[bool, str]]:
    """List each possible conflict of settings and the number of data sets."""
    if mixture.is_single:
        return [
            (
                getattr(settings, name) != field.default,
                f"{name}={getattr(settings, name)}: needs several data sets; add one with --also",
            )
            for name, field in MixingSettings.model_fields.items()
        ]
    names, mix = [data_set.name for data_set in mixture.data_sets], settings.mix
    return [
        (
            settings.adapter_kind is not None,
            f"adapter={settings.adapter_kind}: an adapter trains on one data set; remove the "
            "setting to train the model on several",
        ),
        (
            mix not in ("proportional", "equal") and {*names} != {*shares_by_name(mix)},
            f"mix={mix}: must have a number for {', '.join(names)}, and no other name",
        ),
    ]


def _with_splits(mixture: Mixture, settings: TrainSettings, negatives: str) -> RunData:
    """Apply ``relevant_grade``, add missing splits, merge copies in train, and check that every
    split is usable. The kind of negatives only enters the result.
    """
    if settings.needs_dev:
        parse_measures([settings.metric_for_best_model])
    graded = mixture.map(with_relevant_grade, lowest=settings.relevant_grade)
    graded = graded.map(_with_notes, settings=settings)

    def draw(needs_dev: bool) -> tuple[Mixture, int]:
        with_splits = draw_missing_splits(
            graded,
            seed=settings.seed,
            expected_documents=settings.expected_documents,
            needs_dev=needs_dev,
        )
        # after the split, so that decisions do not change which queries are in test
        decided = with_decisions(with_splits, settings.decisions or ())
        merged = decided.map(merge_copies)
        notes = *merged.joined.notes, *_leaks(graded.joined, settings)
        all_labels = with_splits.map(merge_copies) if settings.decisions else merged
        all_queries = all_labels.joined.training_split().n_queries
        return replace(merged, joined=replace(merged.joined, notes=notes)), all_queries

    with_splits, all_queries = draw(settings.needs_dev)
    for split in ("test", "dev") if settings.needs_dev else ("test",):
        for data_set in with_splits.data_sets:
            data_set.judged_qrels(split)  # raises an error if nothing can be measured
    if not settings.needs_dev:
        return RunData(with_splits, with_splits, None, negatives, all_queries)
    expected = {
        settings.expected_documents or assumed_documents(data_set) for data_set in graded.data_sets
    }
    mixed: ExpectedDocuments = "like-test" if "like-test" in expected else "both"
    expected_documents = expected.pop() if len(expected) == 1 else mixed
    all_have_dev = all("dev" in data_set.splits for data_set in graded.data_sets)
    if settings.refit and all_have_dev:
        raise SettingError(
            f"refit=true: {mixture.joined.title} has a dev split, so none was split off train; "
            "remove the setting"
        )
    before_dev = with_splits
    if not all_have_dev:
        before_dev, all_queries = draw(False)
    return RunData(with_splits, before_dev, expected_documents, negatives, all_queries)


def _with_notes(data: RetrievalData, settings: TrainSettings) -> RetrievalData:
    """Add notes on copies and on weights that training ignores."""
    notes = copy_notes(data)
    if data.training_split().weights is not None and settings.pair_weights == "none":
        notes.append(
            "training pairs have weights, which OPERA ignores; pair_weights=loss uses them"
        )
    return replace(data, notes=(*data.notes, *notes)) if notes else data


def _leaks(data: RetrievalData, settings: TrainSettings) -> Iterator[str]:
    """Yield a note for each split whose queries are in train with the same relevant document."""
    train_keys = text_keys(data, data.training_split())
    for split in ("test", "dev") if settings.needs_dev else ("test",):
        if split in data.splits:
            qrels = data.split(split).relevant()
            in_train = is_among(text_keys(data, qrels), train_keys)
            if shared := len(distinct_numbers(qrels.query_index[in_train])):
                yield (
                    f"train contains {shared:,} of the {qrels.n_queries:,} {split} queries with "
                    f"the same document, so {split} scores may be too high"
                )
