"""The pairs of ``opera train``, in the shape that :class:`opera.PairPruning` has for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate import PartialState
from sentence_transformers import SentenceTransformer

from opera.config.recipe import Recipe
from opera.core.processes import process_count
from opera.core.settings import resolved
from opera.engine.dataset import make_dataset
from opera.engine.pruning import Pruning
from opera.engine.sampler import PairSampler, SetDraws
from opera.methods import Method
from opera.training_set.build import TrainingSet
from opera.training_set.quotas import plan_of

LAG = 1
"""Steps between an observation and the first draw that uses it: the loader reads nothing ahead."""


class RunPruning(Pruning):
    """Draws the pairs of a training set by the method of a recipe.

    Args:
        model: the model that trains.
        training_set: what it trains on.
        recipe: all settings, automatic ones resolved.
        methods: the method of each data set; by default those of the recipe.

    Attributes:
        dataset: looks the texts of a batch up.
        collator: makes a batch of token ids; ``None`` for the library's own, of texts.
        sampler: draws the pairs of each step.
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
        sources = zip(self.methods, training_set.negatives.sets, training_set.sets, strict=True)
        self.sampler = PairSampler(
            [SetDraws(method, source, one.first_document) for method, source, one in sources],
            training_set.pairs,
            plan_of(recipe, processes),
            resolved(self.settings.per_device_train_batch_size),
            quotas=training_set.quotas,
            n_negatives=self.settings.n_negatives,
            lag=LAG,
            rank=PartialState().process_index,
            world_size=processes,
            pair_weights=training_set.labelled.loss_weights,
            confirmed=training_set.labelled.confirmed,
            removed_excess=[one.data.removed_excess for one in training_set.sets],
        )
        self.samplers = [self.sampler]
        self.dataset, self.collator = make_dataset(model, training_set, self.settings)
