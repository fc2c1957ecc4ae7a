"""The guard in a run: λ is chosen by measuring mixtures of the untrained and the fine-tuned weights
on dev."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.core.errors import TrainingError
from opera.core.processes import from_main
from opera.data import RetrievalData
from opera.data.combined import each_set
from opera.data.splits import asks_about_known, seen_share
from opera.engine.session import Session, log_mean
from opera.guard.dev_corpus import (
    DevCorpus,
    Values,
    base_values,
    best_documents,
    dev_corpus,
    dev_values,
    ranks_all,
)
from opera.guard.rule import (
    Kind,
    choose_mixing_weight,
    cross_fitted,
    guarded_measure,
    mean_variance,
    mixing_weights_to_try,
    verdict_of,
)
from opera.runs.record import CurvePoint, GuardRecord, SecondTraining
from opera.training_set.prepare import Prepared
from opera.training_set.prepare_model import encoder_of

log = logging.getLogger("opera")


@dataclass(frozen=True)
class Weights:
    """A copy in CPU memory of everything in a model that training may change; frozen parameters are
    left out.

    Attributes:
        tensors: by their name in the model's ``state_dict``.
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


def mix(base: Weights, fine_tuned: Weights, mixing_weight: float) -> Weights:
    """Interpolate: ``share`` is λ. 0 and 1 give the given weights, byte for byte.

    Integer buffers, such as a count of batches, are those of the fine-tuned model unless λ is 0. Of
    LoRA's matrices the product is mixed: λ·(B A) is (λ·B) A, since one of the two starts as 0.

    Raises:
        TrainingError: if a parameter was frozen before training and is not afterwards.
    """
    if mixing_weight == 0:
        return base
    if mixing_weight == 1:
        return fine_tuned
    if unknown := fine_tuned.tensors.keys() - base.tensors.keys():
        raise TrainingError(
            f"{sorted(unknown)[0]} was frozen when training began and is not now, so its untrained "
            "values are not "
            "kept; unfreeze it before training, or pass guard=False"
        )
    mixed = {}
    for name, after in fine_tuned.tensors.items():
        before = base.tensors[name]
        unmixed = not after.is_floating_point() or ("lora_" in name and before.any())
        mixed[name] = after if unmixed else (1 - mixing_weight) * before + mixing_weight * after
    return Weights(mixed)


class Guard:
    """Chooses how much of a training the final model takes; made while the model holds its
    untrained weights.

    Attributes:
        untrained: the weights before training.
    """

    def __init__(self, session: Session) -> None:
        prepared, self.session = session.prepared, session
        self.base = Weights.of(prepared.model.trained)
        with session.phase("evaluate_dev", "measuring the base model on dev"):
            encoder, data = prepared.model.served, prepared.data.drawn
            dev = DevCorpus(data)
            at_zero = dev_values(encoder, dev, prepared.settings)
            all_ranked = ranks_all(encoder.model, data, prepared.settings)
            self._best = [] if all_ranked else best_documents(encoder, data, prepared.settings)
        log_mean("dev", prepared.settings.metric_for_best_model, at_zero)
        self._values: dict[float, Values] = {0.0: at_zero}
        session.embeddings = {} if all_ranked and not prepared.is_static else None
        self._dev = dev if all_ranked else None

    def choose(self, tuned: Weights) -> GuardRecord:
        """Choose λ on dev; all processes share the measuring, and the main one's choice counts."""
        prepared = self.session.prepared
        what = "measuring mixtures of untrained and fine-tuned weights on dev"
        with self.session.phase("choose_mixing_weight", what):
            dev = self._dev_corpus(tuned)
            documents = len(dev.data.corpus) if self._best else None
            for mixing_weight in mixing_weights_to_try(prepared.is_static)[1:]:
                self.measured(tuned, mixing_weight)
            tuned.put_into(prepared.model.trained)
            return from_main(decide(self._values, prepared, documents))

    def compare(self, first: Weights, second: Weights, mixing_weight: float) -> SecondTraining:
        """Compare two trainings by dev at λ; the model holds the weights of the second.

        The second has seen the dev queries, so its values are too high: they only show a training
        that went wrong. It is kept unless its mean is below the first's by more than the standard
        error of the difference.
        """
        with self.session.phase("compare_trainings", "measuring the second training on dev"):
            self._dev_corpus(first)
            trial = self.measured(first, mixing_weight)
            values = self._measure(second, mixing_weight)
            second.put_into(self.session.prepared.model.trained)
        difference = values - trial
        error = mean_variance(difference) ** 0.5 if len(difference) > 1 else 0.0
        return from_main(
            SecondTraining(
                trial=float(trial.mean()),
                second=float(values.mean()),
                error=float(error),
                kept=bool(difference.mean() >= -error),
            )
        )

    def _dev_corpus(self, tuned: Weights) -> DevCorpus:
        """What dev queries are ranked among: all documents, or the best of the untrained and of the
        fine-tuned model, and others. Changes the weights of the model when it is first made."""
        if self._dev is None:
            prepared, model = self.session.prepared, self.session.prepared.model.trained
            settings, data = prepared.settings, prepared.data.drawn
            tuned.put_into(model)
            fine_tuned = best_documents(encoder_of(model, settings), data, settings)
            best = [np.concatenate(rows) for rows in zip(self._best, fine_tuned, strict=True)]
            self._dev = dev_corpus(data, best, settings)
            self.base.put_into(model)
            served = prepared.model.served
            self._values[0.0] = base_values(served, data, self._dev, settings)
            among = f"{len(self._dev.data.corpus):,} of {len(data.corpus):,}"
            log.info("dev queries are ranked among %s documents", among)
        return self._dev

    def measured(self, tuned: Weights, mixing_weight: float) -> Values:
        """Return the deciding measure of each dev query for the first training at λ: float64
        ``[n]``."""
        if mixing_weight not in self._values:
            self._values[mixing_weight] = self._measure(tuned, mixing_weight)
        return self._values[mixing_weight]

    def _measure(self, tuned: Weights, mixing_weight: float) -> Values:
        """Put a mixture into the model, and measure it on dev."""
        assert self._dev is not None, "made before anything is measured on it"
        prepared, model = self.session.prepared, self.session.prepared.model.trained
        mix(self.base, tuned, mixing_weight).put_into(model)
        encoder = encoder_of(model, prepared.settings, embeddings=self.session.embeddings)
        return dev_values(encoder, self._dev, prepared.settings)


def decide(
    per_query: Mapping[float, Values], prepared: Prepared, documents: int | None
) -> GuardRecord:
    """Choose λ, and record why.

    Args:
        per_query: the deciding measure of each dev query, float64 ``[n]``, by share.
        prepared: the run.
        documents: how many documents the dev queries were ranked among; ``None`` for all.
    """
    settings, named, static = prepared.settings, _kinds_of(prepared), prepared.is_static
    kinds = list(named.values())
    mixing_weight = choose_mixing_weight(per_query, kinds, static)
    honest = cross_fitted(per_query, kinds, static, settings.seed)
    dev = guarded_measure(
        per_query[0.0], per_query[1.0], honest if mixing_weight > 0 else per_query[0.0]
    )
    parts = {name: kind.rows for name, kind in named.items()}
    if len(parts) == 1:
        parts = _rows_of_sets(prepared.data.drawn)
    moments = {"before": 0.0, "fine_tuned": 1.0, "after": mixing_weight}
    return GuardRecord(
        mixing_weight=mixing_weight,
        verdict=verdict_of(mixing_weight, dev, len(honest)),
        measure=settings.metric_for_best_model,
        expected_documents=str(prepared.data.expected_documents),
        expected_documents_given=settings.expected_documents is not None,
        dev_given=not prepared.data.dev_drawn,
        dev_queries=len(honest),
        dev_documents=documents,
        dev_seen=seen_share(prepared.data.drawn, "dev"),
        test_seen=named["like test"].seen if "like test" in named else None,
        curve=[
            CurvePoint(mixing_weight=tried, mean=float(values.mean()))
            for tried, values in per_query.items()
        ],
        dev=dev,
        refit=prepared.refits and mixing_weight > 0,
        dev_parts={
            name: {
                "queries": int(rows.sum()),
                **{when: float(per_query[tried][rows].mean()) for when, tried in moments.items()},
            }
            for name, rows in parts.items()
            if rows.any()
        }
        or None,
    )


def _kinds_of(prepared: Prepared) -> dict[str, Kind]:
    """Which kinds of future queries the dev queries represent, by ``expected_documents``.

    Only ``like-test`` reads one number of the test split.
    """
    data, expected_documents = prepared.data.drawn, prepared.data.expected_documents
    dev = data.judged_qrels("dev")
    every = np.ones(dev.n_queries, dtype=bool)
    if expected_documents == "known":
        return {"same documents": Kind(every, 1.0)}
    if expected_documents == "new":
        return {"new documents": Kind(every, 0.0)}
    if expected_documents == "both":
        known = asks_about_known(data, dev, data.training_split())
        return {"same documents": Kind(known, 1.0), "new documents": Kind(~known, 0.0)}
    return {"like test": Kind(every, seen_share(prepared.data.before_dev, "test"))}


def _rows_of_sets(data: RetrievalData) -> dict[str, np.ndarray]:
    """Which dev queries are of each of several data sets; empty for one."""
    sets = each_set(data, "dev") if data.sets else []
    counts = [data_set.judged_qrels("dev").n_queries for data_set in sets]
    of_set = np.repeat(np.arange(len(sets)), counts)
    return {data_set.name: of_set == number for number, data_set in enumerate(sets)}
