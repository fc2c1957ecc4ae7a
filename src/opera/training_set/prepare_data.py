"""Check data and settings against each other, and draw the splits that are missing; needs neither
torch nor a model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MixingSettings, shares_by_name
from opera.config.recipe import Recipe
from opera.config.training import TEST_FRACTION, TrainSettings
from opera.core.errors import DataError, SettingError
from opera.data import RetrievalData
from opera.data.combined import each_set, for_each
from opera.data.pairs import pair_keys
from opera.data.qrels import Qrels
from opera.data.splits import Future, assumed_future, draw_missing_splits
from opera.data.teacher_file import with_teacher
from opera.data.texts import CorpusText
from opera.retrieval.measures import parse_measures
from opera.training_set.negatives import check_negatives
from opera.training_set.noise import check_noise
from opera.training_set.weights import check_weights, with_weights_note


class PreparedData(NamedTuple):
    """The data of a run.

    Attributes:
        data: the data that trains.
        whole: the same before dev was drawn.
        future: what tomorrow's queries are taken to ask about; ``None`` for a run that needs no dev
            split.
        negatives: the kind of explicit negatives.
    """

    data: RetrievalData
    whole: RetrievalData
    future: Future | None
    negatives: str


def prepare_data(data: RetrievalData, recipe: Recipe) -> PreparedData:
    """Draw the missing splits, and check everything that a run needs of its data; writes nothing.

    Raises:
        InputError: if the data lacks something, or a setting contradicts it.
    """
    settings = recipe.train
    data = _with_teacher(data, settings)
    drawn, whole, future = _drawn(data, settings)
    check_weights(drawn, recipe)
    same, drawn = drawn is whole, with_weights_note(drawn, settings)
    whole = drawn if same else with_weights_note(whole, settings)
    check_mixing(drawn, settings)
    for own in each_set(drawn):
        training = own.training_split()
        recipe.method_class.check(
            recipe.method_settings, training.n_queries, len(training.doc_rows)
        )
    kind = settings.negatives or _automatic_negatives(data, settings)
    check_negatives(kind, drawn, settings)
    for original, own in zip(each_set(data), each_set(drawn), strict=True):
        check_noise(original, own, settings)
    _check_teacher(drawn, settings, kind)
    return PreparedData(drawn, whole, future, kind)


def _drawn(
    data: RetrievalData, settings: TrainSettings
) -> tuple[RetrievalData, RetrievalData, Future | None]:
    """Apply ``relevant_grade``, draw the splits that are missing, and check that each split has
    something to use.

    Returns:
        The data that trains; the same before dev was drawn; and what tomorrow's queries are taken
        to ask about.
    """
    future = settings.future
    if settings.needs_dev:
        parse_measures([settings.metric_for_best_model])
    if settings.guard and settings.refit and settings.evaluates_on_dev:
        raise SettingError(
            f"refit=true with eval_steps={settings.eval_steps}: the second training has no dev "
            f"split to evaluate; "
            "leave one of the two out"
        )
    graded = data.with_relevant_grade(settings.relevant_grade)
    graded = for_each(partial(_with_title_notes, settings.corpus_text), graded)
    graded = for_each(_with_trained_test_note, graded)
    draw = partial(
        draw_missing_splits,
        graded,
        seed=settings.seed,
        test_fraction=TEST_FRACTION,
        future=future,
    )
    prepared = draw(needs_dev=settings.needs_dev)
    for split in ("test", "dev") if settings.needs_dev else ("test",):
        prepared.judged_qrels(split)
    _check_some_text(data, settings.corpus_text)
    if not settings.needs_dev:
        return prepared, prepared, None
    futures = {future or assumed_future(own) for own in each_set(graded)}
    several: Future = "like-test" if "like-test" in futures else "both"
    chosen = futures.pop() if len(futures) == 1 else several
    if all("dev" in own.splits for own in each_set(graded)):
        prepared = for_each(_with_shared_queries_note, prepared)
        return prepared, prepared, chosen
    return prepared, draw(needs_dev=False), chosen


def _with_trained_test_note(data: RetrievalData) -> RetrievalData:
    """Note the queries of a user's own test split that train too, with a document that is relevant
    in both.

    Queries are compared by their texts, since a file of each split may number them anew.
    """
    if "test" not in data.splits:
        return data
    test, train = data.split("test").relevant(), data.training_split()
    train = train.select_judgements(np.isin(train.doc_rows, test.doc_rows))
    known: dict[int, int] = {}

    def keys(qrels: Qrels) -> NDArray[np.int64]:
        texts = data.queries.texts_by_turns(qrels.query_rows)
        numbers = np.array(
            [known.setdefault(hash(text), len(known)) for text in texts], dtype=np.int64
        )
        return pair_keys(numbers[qrels.query_index], qrels.doc_rows)

    shared = len(np.unique(test.query_index[np.isin(keys(test), keys(train))]))
    if not shared:
        return data
    note = f"{shared:,} of test's {test.n_queries:,} queries train too, with the same document: "
    return replace(data, notes=(*data.notes, note + "its scores may be optimistic"))


def _with_shared_queries_note(data: RetrievalData) -> RetrievalData:
    """Note the queries of a user's own dev split that train has too."""
    dev = data.split("dev")
    shared = int(np.isin(dev.query_rows, data.split("train").relevant().query_rows).sum())
    if not shared:
        return data
    note = (
        f"{shared:,} of dev's {dev.n_queries:,} queries are in train too, so dev may promise too "
        f"much"
    )
    return replace(data, notes=(*data.notes, note))


def check_mixing(data: RetrievalData, settings: TrainSettings) -> None:
    """Refuse settings of several data sets where there is one, shares of other names, and several
    with an adapter.

    Raises:
        SettingError: naming the setting.
    """
    if not data.sets:
        for name, field in MixingSettings.model_fields.items():
            if (value := getattr(settings, name)) != field.default:
                raise SettingError(f"{name}={value}: needs several data sets; add one with --also")
        return
    if settings.adapter_kind is not None:
        raise SettingError(
            f"adapter={settings.adapter_kind}: trains on one data set; train the model itself on "
            f"several"
        )
    if settings.mix not in ("proportional", "equal"):
        names = [own.name for own in data.sets]
        if set(names) != set(shares_by_name(settings.mix)):
            raise SettingError(
                f"mix={settings.mix}: must give a share to each of {', '.join(names)}, and to no "
                f"other"
            )


def _with_teacher(data: RetrievalData, settings: TrainSettings) -> RetrievalData:
    """Read the file of a teacher's scores, where there is one."""
    path = settings.teacher_scores
    return data if path is None else with_teacher(data, Path(path))


def _automatic_negatives(data: RetrievalData, settings: TrainSettings) -> str:
    """The kind of explicit negatives where none is chosen; distillation needs some that the teacher
    scored.
    """
    if data.given_negatives is not None:
        return "given"
    return "teacher" if settings.loss == "distill" and data.teacher is not None else "random"


def _check_teacher(data: RetrievalData, settings: TrainSettings, kind: str) -> None:
    """Check that what learns from a teacher has its scores, and that scores have a use.

    Raises:
        SettingError: naming the setting.
    """
    distills, path = settings.loss == "distill", settings.teacher_scores
    if path is not None and kind != "teacher" and settings.loss == "infonce":
        raise SettingError(
            f"teacher_scores={path}: nothing uses them; pass loss=distill, or negatives=teacher"
        )
    if distills and data.teacher is None:
        raise SettingError(
            f"loss=distill: {data.title} holds no scores of a teacher; let opera score --reranker "
            f"write some, and "
            "pass them with --teacher"
        )
    if distills and settings.n_negatives == 0:
        raise SettingError(
            "loss=distill: needs negatives to compare the positive with; pass train_group_size=2 "
            "or more"
        )


def _check_some_text(data: RetrievalData, corpus_text: CorpusText) -> None:
    """Check that not all documents are without a text.

    Raises:
        DataError: if they are.
    """
    if len(data.corpus.empty_rows(corpus_text)) == len(data.corpus):
        raise DataError(
            f"{data.title}: no document has a text with corpus_text={corpus_text}; use title_text"
        )


def _with_title_notes(corpus_text: CorpusText, data: RetrievalData) -> RetrievalData:
    """Note the documents that ``corpus_text=text`` leaves without a text, and the pairs that train
    on one.
    """
    pairs = data.training_split().doc_rows
    left = np.setdiff1d(data.corpus.empty_rows(corpus_text), data.corpus.empty_rows())
    if len(left) == 0:
        return data
    notes = [
        f"corpus_text=text: {len(left):,} documents have a title alone: they are ranked, and are "
        f"no negatives"
    ]
    if empty := int(np.isin(pairs, left).sum()):
        notes.append(
            f"corpus_text=text: {empty:,} of the {len(pairs):,} training pairs train on such a "
            f'document\'s ""'
        )
    return replace(data, notes=(*data.notes, *notes))
