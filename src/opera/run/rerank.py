"""``opera.evaluate`` with a reranker: rank with a first stage, rerank, and compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from opera.config.training import flag_of
from opera.core.arguments import expand_user, whole_number
from opera.core.errors import SettingError, raise_first
from opera.data import Mixture
from opera.data.texts import CorpusText
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.locate import (
    BM25,
    DEPTH,
    Model,
    checked_model,
    first_stage_model,
    run_on,
)
from opera.retrieval.measures import Measure
from opera.retrieval.prompts import LENGTH_SETTINGS
from opera.retrieval.reranker import open_reranker, reranker_settings
from opera.retrieval.reranking import evaluate_reranker
from opera.run.first_stage import FirstStage


class Reranking(NamedTuple):
    """The checked arguments of :func:`opera.evaluate` about a reranker.

    Attributes:
        reranker: folder or hub id of the cross-encoder.
        first_stage: ``bm25``, or the model that ranks all documents.
        depth: how many documents of each query the reranker sorts.
        max_length: tokens of a pair that it reads; ``None`` for its own limit.
    """

    reranker: str
    first_stage: Any
    depth: int
    max_length: int | None

    @classmethod
    def checked(
        cls,
        reranker: str | Path | None,
        settings: Mapping[str, Any],
        *,
        model: Model | None,
        bm25: bool | None,
        hybrid: bool,
        **options: Any,
    ) -> Self | None:
        """Check that the arguments fit together; ``None`` without a reranker.

        Raises:
            SettingError: with the argument and its requirement.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if reranker is None:
            needs = ((True, f"{flag_of(name)}: needs --reranker") for name in given)
            raise_first(SettingError, *needs)
            return None
        stage = checked_model(given.get("first_stage", BM25), "--first-stage")
        of_model = [
            name for name in ("kind", *LENGTH_SETTINGS.values(), "passages") if name in settings
        ]
        raise_first(
            SettingError,
            (model is not None, "--model --reranker: pass the model as --first-stage"),
            (hybrid, "--hybrid --reranker: remove one of the two options"),
            (
                bm25 is not None,
                "--bm25 --reranker: leave --bm25 out; BM25 is the first stage unless --first-stage "
                "names a model",
            ),
            (
                stage == BM25 and of_model,
                f"{' and '.join(map(flag_of, of_model))}: needs a model as --first-stage; a "
                "reranker reads whole texts, up to --max-length",
            ),
        )
        length = given.get("max_length")
        return cls(
            expand_user(reranker, "reranker"),
            stage,
            whole_number(given.get("depth", DEPTH), "depth", 1),
            None if length is None else whole_number(length, "max_length", 8),
        )

    def run_on(self, data: Mixture, run: Model) -> Model:
        """Return the run whose splits and grades apply: the given one, the first stage's, or the
        reranker's.
        """
        model = first_stage_model(run)
        return run_on(data.joined, model, self.reranker) or model or self.reranker

    def evaluate(
        self,
        data: Mixture,
        split: str,
        measures: Sequence[Measure],
        settings: Mapping[str, Any],
        corpus_text: CorpusText,
    ) -> Evaluation:
        """Measure the first stage, and the reranked documents beside it.

        Raises:
            DataError: if the first stage is BM25 and the documents have no words.
        """
        of_reranker, of_model = reranker_settings(settings)
        reranker = open_reranker(self.reranker, **of_reranker, max_length=self.max_length)
        stage = FirstStage.open(self.first_stage, data, corpus_text, of_model)
        result = stage.evaluate(data, split, measures, self.depth)
        reranked = evaluate_reranker(
            reranker, data, split, result, self.depth, measures, corpus_text
        )
        return replace(result, reranked=reranked)
