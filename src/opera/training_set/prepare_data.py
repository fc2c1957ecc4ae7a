"""Check data and settings against each other, and draw the splits that are missing; needs neither
torch nor a model.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from opera.config.negatives import MixingSettings, shares_by_name
from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.errors import DataError, SettingError
from opera.data import RetrievalData
from opera.data.combined import each_set, first_rows, for_each
from opera.data.decisions import with_decisions
from opera.data.identity import (
    copy_notes,
    documents_that_are_queries,
    judges_texts_of,
    merge_copies,
)
from opera.data.pair_files import with_teacher
from opera.data.splits import (
    ExpectedDocuments,
    assumed_documents,
    draw_missing_splits,
    named_documents,
    queries_naming,
)
from opera.retrieval.measures import parse_measures
from opera.training_set.negatives import check_negatives

POPULAR = 0.2
"""A document that more than this share of the training queries name is popular."""


@dataclass(frozen=True)
class RunData:
    """The data of a run.

    Attributes:
        drawn: grades below ``relevant_grade`` are 0, and missing splits are drawn: what trains, and
            is measured.
        before_dev: the same before dev was drawn; ``drawn`` itself if it was not.
        future: what tomorrow's queries are taken to ask about; ``None`` for a run that needs no dev
            split.
        negatives: the kind of explicit negatives.
        decided: fingerprint of the training pairs after decisions about them; ``None`` without
            decisions.
    """

    drawn: RetrievalData
    before_dev: RetrievalData
    expected_documents: ExpectedDocuments | None
    negatives: str
    decided: int | None = None

    @property
    def dev_drawn(self) -> bool:
        """Whether the dev split was drawn from train."""
        return self.before_dev is not self.drawn

    @property
    def again(self) -> RetrievalData:
        """The data of a second training: all of train before dev was drawn.

        Popular documents that left train stay out: after a training with them they rank first for
        every query, and dev does not show it, since the second training has seen its queries.
        """

        def back(before_dev: RetrievalData, drawn: RetrievalData) -> RetrievalData:
            positive = before_dev.training_split()
            popular = queries_naming(before_dev, positive) > POPULAR * positive.n_queries
            popular &= ~named_documents(before_dev, drawn.split("train"))[positive.doc_rows]
            return before_dev.hold_out_pairs(positive.select_judgements(popular))

        return for_each(back, self.before_dev, self.drawn)

    @property
    def lost_to_dev(self) -> float:
        """Which share of its queries, or of its pairs, dev took from train; the larger one."""
        left, train = self.drawn.training_split(), self.before_dev.training_split()
        return 1 - min(left.n_queries / train.n_queries, len(left.doc_rows) / len(train.doc_rows))


def prepare_data(data: RetrievalData, recipe: Recipe) -> RunData:
    """Draw the missing splits, apply decisions about labels, and check everything that a run needs
    of its data; writes nothing.

    Raises:
        InputError: if the data lacks something, or a setting contradicts it.
    """
    settings = recipe.train
    if settings.teacher_scores is not None:
        data = with_teacher(data, Path(settings.teacher_scores))
    drawn, before_dev, expected_documents = _drawn(data, settings)
    merged = for_each(merge_copies, drawn)
    before_dev = merged if before_dev is drawn else for_each(merge_copies, before_dev)
    drawn = merged
    for data_set in each_set(drawn):
        train = data_set.training_split()
        recipe.method_class.check(recipe.method_settings, train.n_queries, len(train.doc_rows))
    negatives = settings.negatives or "random"
    if settings.negatives is None and data.given_negatives is not None:
        negatives = "given"
    elif settings.negatives is None and settings.loss == "distill" and data.teacher is not None:
        negatives = "teacher"  # distillation needs some that the teacher scored
    for wrong, message in _refusals(drawn, recipe, negatives):
        if wrong:
            raise SettingError(message)
    check_negatives(negatives, drawn, settings)
    decided = _fingerprint(drawn) if settings.decisions else None
    return RunData(drawn, before_dev, expected_documents, negatives, decided)


def _fingerprint(data: RetrievalData) -> int:
    """A number that differs where training pairs, or which of them are confirmed, differ."""
    number = data.training_split().pairs().fingerprint
    for part in each_set(data):
        for keys in (part.confirmed, part.rejected):
            if keys is not None:
                number = zlib.crc32(keys.tobytes(), number)
    return number


def _refusals(data: RetrievalData, recipe: Recipe, negatives: str) -> Iterator[tuple[bool, str]]:
    """Yield what settings and data may lack of each other, and whether they do."""
    settings, method = recipe.train, recipe.method_class
    use, weights = settings.pair_weights, data.training_split().weights
    title, path, distills = data.title, settings.teacher_scores, settings.loss == "distill"
    names, mix = [data_set.name for data_set in data.sets], settings.mix
    yield (
        use != "none" and weights is None,
        f"pair_weights={use}: the pairs of {title} have no weights; leave the setting out",
    )
    yield (
        use == "loss" and weights is not None and not weights.any(),
        f"pair_weights=loss: every training pair of {title} has weight 0",
    )
    yield (
        use == "scores" and not method.needs_scores(recipe.method_settings),
        f"pair_weights=scores: method {recipe.method} uses no pair scores; use pair_weights=loss",
    )
    for name, field in MixingSettings.model_fields.items():
        value = getattr(settings, name)
        yield (
            not names and value != field.default,
            f"{name}={value}: needs several data sets; add one with --also",
        )
    yield (
        bool(names) and settings.adapter_kind is not None,
        f"adapter={settings.adapter_kind}: trains on one data set; train the model itself on "
        "several",
    )
    yield (
        mix not in ("proportional", "equal") and {*names} != {*shares_by_name(mix)},
        f"mix={mix}: must give a share to each of {', '.join(names)}, and to no other",
    )
    yield (
        path is not None and negatives != "teacher" and settings.loss == "infonce",
        f"teacher_scores={path}: nothing uses them; pass loss=distill, or negatives=teacher",
    )
    yield (
        distills and data.teacher is None,
        f"loss=distill: {title} holds no scores of a teacher; let opera score --reranker write "
        "some, and pass them with --teacher",
    )
    yield (
        distills and settings.n_negatives == 0,
        "loss=distill: needs negatives to compare the positive with; pass train_group_size=2 or "
        "more",
    )


def _drawn(
    data: RetrievalData, settings: TrainSettings
) -> tuple[RetrievalData, RetrievalData, ExpectedDocuments | None]:
    """Apply ``relevant_grade``, draw the missing splits, and check that each has something to use.

    Returns:
        ``drawn``, ``before_dev`` and ``expected_documents`` of :class:`RunData`.
    """
    if settings.needs_dev:
        parse_measures([settings.metric_for_best_model])
    if settings.guard and settings.refit and settings.evaluates_on_dev:
        raise SettingError(
            f"refit=true with eval_steps={settings.eval_steps}: the second training has no dev "
            "split to evaluate; leave one of the two out"
        )
    graded = data.with_relevant_grade(settings.relevant_grade)
    in_train = {split: _in_train(graded, split) for split in ("test", "dev")}
    graded = for_each(partial(_with_notes, settings, in_train), graded)

    def draw(needs_dev: bool) -> RetrievalData:
        with_splits = draw_missing_splits(
            graded,
            seed=settings.seed,
            expected_documents=settings.expected_documents,
            needs_dev=needs_dev,
        )
        # after the draw, so that runs with decisions and without have the same test
        return with_decisions(with_splits, settings.decisions or ())

    drawn = draw(settings.needs_dev)
    for split in ("test", "dev") if settings.needs_dev else ("test",):
        drawn.judged_qrels(split)
    if len(data.corpus.empty_rows(settings.corpus_text)) == len(data.corpus):
        raise DataError(
            f"{data.title}: no document has a text with corpus_text={settings.corpus_text}; use "
            "title_text"
        )
    if not settings.needs_dev:
        return drawn, drawn, None
    futures = {
        settings.expected_documents or assumed_documents(data_set) for data_set in each_set(graded)
    }
    several: ExpectedDocuments = "like-test" if "like-test" in futures else "both"
    expected_documents = futures.pop() if len(futures) == 1 else several
    all_have_dev = all("dev" in data_set.splits for data_set in each_set(graded))
    return drawn, drawn if all_have_dev else draw(False), expected_documents


def _with_notes(
    settings: TrainSettings, in_train: Mapping[str, Mapping[str, int]], data: RetrievalData
) -> RetrievalData:
    """Note what may make the scores of a data set's own splits, or its training, a surprise.

    ``in_train`` is what :func:`_in_train` returns, by split.
    """
    train, notes = data.training_split(), copy_notes(data)
    untitled = np.setdiff1d(data.corpus.empty_rows(settings.corpus_text), data.corpus.empty_rows())
    if len(untitled):
        notes.append(
            f"corpus_text=text: {len(untitled):,} documents have a title alone: they are ranked, "
            "and are no negatives"
        )
    if empty := int(np.isin(train.doc_rows, untitled).sum()):
        notes.append(
            f"corpus_text=text: {empty:,} of the {len(train.doc_rows):,} training pairs name such "
            "a document, so they train on an empty text"
        )
    if shared := in_train["test"][data.name]:
        notes.append(
            f"{shared:,} of test's {data.split('test').relevant().n_queries:,} queries train too, "
            "with the same document: its scores may be optimistic"
        )
    for split in (name for name in ("test", "dev") if name in data.splits):
        own_documents = documents_that_are_queries(data, data.split(split).relevant())
        if count := int((own_documents >= 0).sum()):
            notes.append(
                f"{count:,} {split} queries are documents too, with the same id and text: such a "
                "document is left out of its query's ranking, as in BEIR"
            )
    if settings.needs_dev and (shared := in_train["dev"][data.name]):
        notes.append(
            f"{shared:,} of dev's {data.split('dev').n_queries:,} queries are in train too, so dev "
            "may promise too much"
        )
    if train.weights is not None:
        used = {
            "none": "not used: pair_weights=loss or scores uses them",
            "loss": "used in the loss",
            "scores": "used as the start of the pair scores",
        }[settings.pair_weights]
        lowest, highest = train.weights.min(), train.weights.max()
        notes.append(f"training pairs have weights from {lowest:g} to {highest:g}, {used}")
    elif settings.pair_weights != "none":  # and another data set has weights
        notes.append("training pairs have no weights: pair_weights changes nothing here")
    return replace(data, notes=(*data.notes, *notes)) if notes else data


def _in_train(data: RetrievalData, split: str) -> dict[str, int]:
    """Count the queries of a split that train too, in any data set, by the name of their set.

    Those of test count if a document is relevant to them in both.
    """
    query_rows = np.empty(0, dtype=np.int32)
    if split in data.splits:
        train, qrels = data.training_split(), data.split(split)
        shared = np.isin(data.query_group[qrels.query_rows], data.query_group[train.query_rows])
        if split == "test":
            qrels = qrels.relevant()
            shared = np.unique(qrels.query_index[judges_texts_of(data, train, qrels)])
        query_rows = qrels.query_rows[shared]
    counts = np.histogram(query_rows, first_rows(data)[0])[0]
    return {
        data_set.name: count
        for data_set, count in zip(each_set(data), counts.tolist(), strict=True)
    }
