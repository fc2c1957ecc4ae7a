"""Kinds of explicit negatives to compare, which ``negatives.py`` trains with.

A document without a training pair is never a positive. As a random negative it is pushed away from the queries in
every batch that draws it. The kinds differ in how often they draw such *unlabelled* documents:

- ``default``: what OPERA chooses: ``random`` or ``labelled``, which is ``seen`` here
- ``random``: all documents alike; OPERA's default until November 2026
- ``none``: no explicit negatives, and ``none-double`` with a batch of twice the size, which encodes as many documents
- ``seen``: only documents with a training pair; ``positives``: in proportion to their number of training pairs
- ``capped-N``: each unlabelled document N times per run on average, else as ``seen``; ``weighted-N``: all documents
  alike, but the term of an unlabelled document in the softmax counts as if it had been drawn N times per run
- ``detached``: all documents alike, but an unlabelled document has no gradient
- ``hard``, ``hard-seen``, ``hard-capped-N``, ``hard-positives``: the same at ranks 10 to 100 of the base model
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.training.build import TrainingSet
from opera.training.loss import InfoNCELoss, register_loss
from opera.training.negatives import NegativeInputs, register_negatives
from opera.training.sampler import Batch

DEFAULT, OLD_DEFAULT = "default", "random"
KINDS = (
    *(DEFAULT, OLD_DEFAULT, "none", "seen", "capped-3", "capped-10", "capped-1", "positives"),
    *("weighted-3", "weighted-10", "detached", "none-double"),
    *("hard", "hard-seen", "hard-capped-3", "hard-positives"),
)


class WeightedDraws:
    """Explicit negatives with a weight per document of the corpus: in the whole corpus, or among mined documents.

    Args:
        inputs: of the kind of negatives.
        rule: ``random``, ``seen``, ``positives`` or ``capped``.
        cap: draws of an unlabelled document per run, on average, with the rule ``capped``.
        mined: whether to draw among the mined documents of the query.
    """

    def __init__(self, inputs: NegativeInputs, rule: str, cap: float, mined: bool) -> None:
        pool = inputs.pool.doc_rows(np.arange(len(inputs.pool)))
        positives = np.bincount(inputs.pairs.pair_doc, minlength=len(inputs.data.corpus))[pool]
        self.lists: Any = None
        if mined:
            self.lists = inputs.miner.mine(inputs.query_rows, inputs.pairs, inputs.known, inputs.settings.seed)
        weights = np.ones(len(pool))
        if rule == "seen":
            weights = (positives > 0).astype(float)
        elif rule == "positives":
            weights = positives.astype(float)
        elif rule == "capped":
            weights = np.where(positives > 0, 1.0, relative_cap(inputs, int((positives == 0).sum()), cap))
        self.weights = np.zeros(len(inputs.data.corpus))
        self.weights[pool] = weights / weights.sum()
        self.cumulative = np.cumsum(self.weights)

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Draw by the weights; a query whose mined documents have no weight gets documents of the corpus."""
        rng = generator(seed, "study.negatives", step)
        places = rng.random((len(queries), count)) * self.cumulative[-1]
        rows: NDArray[np.int64] = np.searchsorted(self.cumulative, places, side="right").astype(np.int64)
        if self.lists is not None:
            for place, query in enumerate(queries):
                mined = self.lists.of_query(query)
                weights = self.weights[mined]
                if weights.sum() > 0:
                    rows[place] = rng.choice(mined, count, p=weights / weights.sum())
        return rows


def relative_cap(inputs: NegativeInputs, unlabelled: int, cap: float) -> float:
    """The weight of an unlabelled document next to a labelled one, for ``cap`` draws per run; at most 1."""
    settings = inputs.settings
    assert settings.max_steps is not None
    assert settings.per_device_train_batch_size is not None
    draws = settings.max_steps * settings.per_device_train_batch_size * settings.n_negatives
    labelled = len(inputs.pool) - unlabelled
    wanted = cap * unlabelled  # p / (1 - p) = weight · unlabelled / labelled, with p = wanted / draws
    if unlabelled == 0 or wanted >= draws:
        return 1.0
    return min(1.0, wanted / (draws - wanted) * labelled / unlabelled)


def settings_of_kind(kind: str) -> dict[str, Any]:
    """Return the settings of a run with a kind of negatives, which is registered if it is one of this file."""
    if kind.startswith("none"):
        return {"train_group_size": 1, **({"per_device_train_batch_size": 1024} if kind == "none-double" else {})}
    if kind == DEFAULT:
        return {}
    if kind == OLD_DEFAULT:
        return {"negatives": "random"}
    if kind.startswith(("weighted", "detached")):
        return {"negatives": "random", "loss": kind}
    mined, rule = kind.startswith("hard"), kind.removeprefix("hard").strip("-") or "random"
    rule, _, cap = rule.partition("-")
    name = f"study-{kind}"
    register_negatives(name)(KindOfStudy(rule, float(cap or 0), mined))
    return {"negatives": name}


class KindOfStudy:
    """Makes the negatives of one kind for each run."""

    def __init__(self, rule: str, cap: float, mined: bool) -> None:
        self.rule, self.cap, self.mined = rule, cap, mined
        self.__qualname__ = f"KindOfStudy({rule}, {cap}, {mined})"

    def __call__(self, inputs: NegativeInputs) -> WeightedDraws:
        """Make the negatives of a run."""
        return WeightedDraws(inputs, self.rule, self.cap, self.mined)


class WeightedLoss(InfoNCELoss):
    """InfoNCE whose term of an unlabelled document counts as if the run had drawn the document ``cap`` times."""

    cap = 3.0

    def prepare(self, training_set: TrainingSet, settings: Any) -> None:
        """Compute the logarithm of each document's weight."""
        documents = len(training_set.data.corpus)
        unlabelled = np.bincount(training_set.pairs.pair_doc, minlength=documents) == 0
        draws = settings.max_steps * settings.per_device_train_batch_size * settings.n_negatives / documents
        self.log_weight = np.where(unlabelled, np.log(min(1.0, self.cap / draws)), 0.0).astype(np.float32)

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """Add the logarithm of the weight to the logit."""
        shift = torch.from_numpy(self.log_weight[batch.doc_rows.T.ravel()]).to(similarity.device)
        return super().batch_losses(similarity + self.temperature * shift, excluded, batch)


@register_loss("weighted-3")
class Weighted3(WeightedLoss):
    """Three draws per run."""


@register_loss("weighted-10")
class Weighted10(WeightedLoss):
    """Ten draws per run."""

    cap = 10.0


class DetachedLoss(InfoNCELoss):
    """InfoNCE in which an unlabelled document moves queries, but no query moves the document."""

    def prepare(self, training_set: TrainingSet, settings: Any) -> None:
        """Mark the unlabelled documents."""
        self.unlabelled = np.bincount(training_set.pairs.pair_doc, minlength=len(training_set.data.corpus)) == 0

    def loss_of(self, batch: Batch, embeddings: Sequence[Tensor]) -> Tensor:
        """Stop the gradients of unlabelled documents."""
        queries, *columns = embeddings
        fixed = torch.from_numpy(self.unlabelled[batch.doc_rows[batch.local]])
        stopped = [
            torch.where(fixed[:, [number]].to(column.device), column.detach(), column)
            for number, column in enumerate(columns)
        ]
        return super().loss_of(batch, [queries, *stopped])


register_loss("detached")(DetachedLoss)
