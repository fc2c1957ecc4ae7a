"""The guard in a run: measure mixtures of base and fine-tuned weights on dev, and choose λ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.config.training import TrainSettings
from opera.core.processes import from_main
from opera.core.terminal import counted, log
from opera.data import Mixture
from opera.data.splits import asks_about_known, known_fraction
from opera.guard.dev_corpus import (
    best_before_training,
    best_documents,
    dev_corpus,
    joined_rankings,
    most_documents,
    predicted_best_documents,
)
from opera.guard.rule import (
    COARSE,
    FINE,
    KEYWORD_ANCHOR,
    STATIC_KEYWORD_ANCHOR,
    QueryKind,
    anchors_of,
    choose_keyword_weights,
    choose_weight,
    cross_fitted,
    dev_queries_of_sets,
    guarded_measure,
    mean_variance,
    verdict_of,
)
from opera.retrieval.encoder import EmbeddingParts, Encoder
from opera.retrieval.evaluation import Evaluation, KeywordSearch, evaluate_encoder
from opera.retrieval.keywords import POOL
from opera.retrieval.measures import parse_measures
from opera.run_folder.record import CurvePoint, GuardRecord, KeywordsRecord, SecondTraining
from opera.training.prepare import Prepared, encoder_of

Phase = Callable[..., AbstractContextManager[None]]
"""Times a block of a phase and logs its description, as ``Session.phase`` does."""


@dataclass(frozen=True)
class Weights:
    """A copy of a model's weights in CPU memory, without frozen parameters.

    Attributes:
        tensors: by name in the model's ``state_dict``.
    """

    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, model: SentenceTransformer) -> Weights:
        """Copy the weights of a model."""
        frozen = {
            name for name, parameter in model.named_parameters() if not parameter.requires_grad
        }
        return cls(
            {
                name: tensor.detach().to("cpu", copy=True)
                for name, tensor in model.state_dict().items()
                if isinstance(tensor, Tensor) and name not in frozen
            }
        )

    def put_into(self, model: SentenceTransformer) -> None:
        """Overwrite the weights of a model in place."""
        state = model.state_dict()
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                state[name].copy_(tensor)


def mixed_weights(base: Weights, fine_tuned: Weights, mixing_weight: float) -> Weights:
    """Interpolate between two sets of weights; λ = 0 and λ = 1 return one of them unchanged.

    Integer buffers, such as a count of batches, come from the fine-tuned model unless λ is 0. For
    LoRA, the product of the matrices is mixed: λ·(B A) is (λ·B) A, and B starts as 0.
    """
    if mixing_weight == 0:
        return base
    if mixing_weight == 1:
        return fine_tuned
    mixed = {}
    for name, tuned in fine_tuned.tensors.items():
        start = base.tensors[name]
        unmixed = not tuned.is_floating_point() or ("lora_" in name and start.any())
        mixed[name] = tuned if unmixed else (1 - mixing_weight) * start + mixing_weight * tuned
    return Weights(mixed)


class Guard:
    """Chooses λ for the final model; created while the model holds its base weights.

    Args:
        prepared: the run.
        phase: times the measurements.
        keywords: keyword search in the data; ``None`` without.

    Attributes:
        base: the base weights.
        results: the results on dev of the mixtures of the first training, by λ.
        embeddings: document embeddings of the measured models, for measurements on test; ``None``
            for a static model, or if dev ranks only a part of the corpus.
        encoding_is_cheap: whether encoding all documents once more takes little time.
    """

    def __init__(self, prepared: Prepared, phase: Phase, keywords: KeywordSearch | None) -> None:
        self.prepared, self.phase, self.keywords = prepared, phase, keywords
        self.base = Weights.of(prepared.model.trained)
        with phase("evaluate_dev"):
            encoder, data = prepared.model.base_as_saved, prepared.data.with_splits
            result = evaluate_dev(encoder, data, prepared.settings)
            self._most_documents = most_documents(prepared.is_static, encoder, data)
            all_ranked = len(data.joined.corpus) <= self._most_documents
            self._best = (
                []
                if all_ranked
                else best_before_training(encoder, data, keywords, prepared.settings)
            )
        log_mean("dev", prepared.settings.metric_for_best_model, self._values(result))
        self.results: dict[float, Evaluation] = {0.0: result}
        self.encoding_is_cheap = all_ranked or prepared.is_static
        in_memory = all_ranked and not prepared.is_static
        self.embeddings: EmbeddingParts | None = {} if in_memory else None
        self._dev = data if all_ranked else None

    def choose(self, fine_tuned: Weights) -> GuardRecord:
        """Choose λ on dev. All processes measure; the main process chooses."""
        prepared = self.prepared
        with self.phase("choose_mixing_weight"):
            dev = self._dev_corpus(fine_tuned)
            n_documents = len(dev.joined.corpus) if self._best else None
            for mixing_weight in (FINE if prepared.is_static else COARSE)[1:]:
                self.measured(fine_tuned, mixing_weight)
            fine_tuned.put_into(prepared.model.trained)
            per_query = {
                mixing_weight: self._values(result)
                for mixing_weight, result in self.results.items()
            }
            return from_main(decide(per_query, prepared, n_documents))

    def choose_keyword_weights(self, mixing_weight: float) -> KeywordsRecord | None:
        """Choose w for the mixture with weight λ on dev; ``None`` without keyword search."""
        prepared, keywords, dev = self.prepared, self.keywords, self._dev
        settings, kinds = prepared.settings, list(_query_kinds(prepared).values())
        (measure,) = parse_measures(settings.metric_for_best_model)
        if keywords is None or dev is None or measure.depth > POOL:
            return None
        with self.phase("keywords", "measuring keyword search on dev"):
            if self._best:
                keywords = KeywordSearch.build(dev, settings.corpus_text)
            words = keywords.evaluate(dev, "dev", [settings.metric_for_best_model])
            model = self.results[mixing_weight]
            anchors = (
                STATIC_KEYWORD_ANCHOR if prepared.situation.model == "static" else KEYWORD_ANCHOR
            )
            return from_main(
                choose_keyword_weights(
                    dev, model, words, kinds, anchors, measure.name, settings.seed
                )
            )

    def _values(self, result: Evaluation) -> NDArray[np.float64]:
        """The guard's measure of each dev query."""
        return result.per_query[self.prepared.settings.metric_for_best_model]

    def compare(
        self, first_training: Weights, second_training: Weights, mixing_weight: float
    ) -> SecondTraining:
        """Compare two trainings on dev at λ; afterwards the model holds the second's weights.

        The second training has seen the dev queries, so its values are too high. They only reveal a
        training that failed. OPERA keeps the second training unless its mean is lower by more than
        the standard error of the difference.
        """
        with self.phase("compare_trainings"):
            self._dev_corpus(first_training)
            first_values = self._values(self.measured(first_training, mixing_weight))
            second_values = self._values(self._measure(second_training, mixing_weight))
            second_training.put_into(self.prepared.model.trained)
        difference = second_values - first_values
        error = mean_variance(difference) ** 0.5 if len(difference) > 1 else 0.0
        return from_main(
            SecondTraining(
                trial=float(first_values.mean()),
                second=float(second_values.mean()),
                error=float(error),
                kept=bool(difference.mean() >= -error),
            )
        )

    def _dev_corpus(self, fine_tuned: Weights) -> Mixture:
        """Return the documents to rank for dev queries.

        A reduced corpus holds the best documents of the base model, of keyword search and of the
        fine-tuned model, and random ones. The first call changes the weights of the model.
        """
        if self._dev is None:
            prepared, model = self.prepared, self.prepared.model.trained
            settings, data = prepared.settings, prepared.data.with_splits
            encoder = encoder_of(model, settings)
            if prepared.ranks_all:
                fine_tuned.put_into(model)
                tuned_best = best_documents(encoder, data, settings)
            else:
                # the base model shares these weights, and its embeddings may have left the cache
                self.base.put_into(model)
                base = prepared.model.base_as_saved
                embeddings = [
                    base.encode_corpus(data_set, settings.corpus_text)
                    for data_set in data.data_sets
                ]
                fine_tuned.put_into(model)
                tuned_best = predicted_best_documents(
                    embeddings, encoder, data, self._best, settings
                )
            best = joined_rankings([self._best, tuned_best])
            self._dev = dev_corpus(data, best, settings, self._most_documents)
            self.base.put_into(model)
            self.results[0.0] = evaluate_dev(prepared.model.base_as_saved, self._dev, settings)
        return self._dev

    def measured(self, fine_tuned: Weights, mixing_weight: float) -> Evaluation:
        """Return the results of the first training at λ on dev."""
        if mixing_weight not in self.results:
            self.results[mixing_weight] = self._measure(fine_tuned, mixing_weight)
        return self.results[mixing_weight]

    def _measure(self, fine_tuned: Weights, mixing_weight: float) -> Evaluation:
        """Put a mixture into the model, and measure it on dev."""
        assert self._dev is not None
        prepared, model = self.prepared, self.prepared.model.trained
        mixed_weights(self.base, fine_tuned, mixing_weight).put_into(model)
        encoder = encoder_of(model, prepared.settings, embeddings=self.embeddings)
        return evaluate_dev(encoder, self._dev, prepared.settings)


def log_mean(split: str, measure: str, values: NDArray[np.float64]) -> None:
    """Log the base model's mean of a measure over queries ``[n]``."""
    log.info(
        "base model on %s: %s %.1f (mean of %s)",
        *(split, measure, 100 * values.mean(), counted(len(values), "query")),
    )


def decide(
    per_query: Mapping[float, NDArray[np.float64]], prepared: Prepared, n_documents: int | None
) -> GuardRecord:
    """Choose λ, and record why.

    Args:
        per_query: the guard's measure of each dev query, by λ.
        prepared: the run.
        n_documents: how many documents the dev queries rank; ``None`` for all.
    """
    settings, kinds_by_name = prepared.settings, _query_kinds(prepared)
    kinds, anchors = list(kinds_by_name.values()), anchors_of(prepared.situation.model)
    mixing_weight = choose_weight(per_query, kinds, anchors)
    unbiased = cross_fitted(per_query, kinds, anchors, settings.seed)
    final = unbiased if mixing_weight > 0 else per_query[0.0]
    dev = guarded_measure(per_query[0.0], final, per_query[1.0])
    parts = {name: kind.has_query for name, kind in kinds_by_name.items()}
    if len(parts) == 1:
        sets = prepared.data.with_splits
        parts = {} if sets.is_single else dev_queries_of_sets(sets)
    columns = {"base": 0.0, "fine_tuned": 1.0, "final": mixing_weight}
    return GuardRecord(
        mixing_weight=mixing_weight,
        dev_verdict=verdict_of(mixing_weight, dev, len(unbiased)),
        measure=settings.metric_for_best_model,
        expected_documents=str(prepared.data.expected_documents),
        expected_documents_given=settings.expected_documents is not None,
        dev_given=not prepared.data.dev_drawn,
        dev_queries=len(unbiased),
        dev_documents=n_documents,
        dev_seen=prepared.data.known_on_dev,
        test_seen=kinds_by_name["like test"].seen if "like test" in kinds_by_name else None,
        curve=[
            CurvePoint(mixing_weight=tried, mean=float(values.mean()))
            for tried, values in per_query.items()
        ],
        dev=dev,
        refit=prepared.refits and mixing_weight > 0,
        dev_parts={
            name: {
                "queries": int(has_query.sum()),
                **{
                    key: float(per_query[tried][has_query].mean()) for key, tried in columns.items()
                },
            }
            for name, has_query in parts.items()
            if has_query.any()
        }
        or None,
    )


def _query_kinds(prepared: Prepared) -> dict[str, QueryKind]:
    """Return the kinds of expected queries that dev represents, by ``expected_documents``.

    ``like-test`` reads one number of the test split: its fraction of known documents.
    """
    data, expected_documents = prepared.data.with_splits.joined, prepared.data.expected_documents
    dev = data.judged_qrels("dev")
    all_queries = np.ones(dev.n_queries, dtype=bool)
    if expected_documents == "known":
        return {"same documents": QueryKind(all_queries, 1.0)}
    if expected_documents == "new":
        return {"new documents": QueryKind(all_queries, 0.0)}
    if expected_documents == "both":
        known = asks_about_known(data, dev, data.training_split())
        return {"same documents": QueryKind(known, 1.0), "new documents": QueryKind(~known, 0.0)}
    return {
        "like test": QueryKind(all_queries, known_fraction(prepared.data.before_dev.joined, "test"))
    }


def evaluate_dev(encoder: Encoder, mixture: Mixture, settings: TrainSettings) -> Evaluation:
    """Measure a model on dev."""
    measure = settings.metric_for_best_model
    return evaluate_encoder(encoder, mixture, "dev", [measure], settings.corpus_text)
