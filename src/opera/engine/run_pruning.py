"""The sampler of ``opera train``, like :class:`opera.PairPruning` for other scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from accelerate import PartialState
from sentence_transformers import SentenceTransformer

from opera.config.recipe import Recipe
from opera.core.processes import process_count
from opera.core.settings import resolved
from opera.engine.dataset import make_dataset
from opera.engine.pruning import Pruning
from opera.engine.sampler import PairSampler, SetSampler
from opera.labels.visits import FirstVisits
from opera.methods import Method
from opera.training_pairs.build import TrainingSet
from opera.training_pairs.quotas import plan_of

LAG = 1
"""Steps between an observation and its first use. The loader reads no batch ahead."""


class RunPruning(Pruning):
    """Samples the pairs of a training set by the method of a recipe.

    Args:
        model: the model that trains.
        training_set: the pairs to train on.
        recipe: all settings, automatic ones resolved.
        methods: one per data set; by default as in the recipe.

    Attributes:
        dataset: looks up the texts of a batch.
        collator: collates token ids; ``None`` for sentence-transformers' collator of texts.
        sampler: samples the pairs of each step.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        training_set: TrainingSet,
        recipe: Recipe,
        methods: Sequence[Method[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.training_set, self.settings = model, training_set, recipe.train
        processes = process_count()
        self.methods = training_set.methods(recipe, processes) if methods is None else methods
        visits = FirstVisits.none(
            training_set.pairs.n_pairs,
            training_set.first_pairs,
            np.concatenate([part.confirmed for part in training_set.sets]),
            [part.data.removed_excess for part in training_set.sets],
        )
        weighs = self.settings.pair_weights == "loss"
        parts = zip(self.methods, training_set.negatives.sets, training_set.sets, strict=True)
        self.sampler = PairSampler(
            [
                SetSampler(method, negatives, part.first_document)
                for method, negatives, part in parts
            ],
            training_set.pairs,
            plan_of(recipe, processes),
            resolved(self.settings.per_device_train_batch_size),
            quotas=training_set.quotas,
            n_negatives=self.settings.n_negatives,
            lag=LAG,
            rank=PartialState().process_index,
            world_size=processes,
            pair_weights=training_set.loss_weights if weighs else None,
            visits=visits,
        )
        self.samplers = [self.sampler]
        self.dataset, self.collator = make_dataset(model, training_set, self.settings)
