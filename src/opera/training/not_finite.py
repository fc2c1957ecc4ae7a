"""A loss, a gradient or a weight that is no finite number ends training, and the message names the
pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import BoolArray
from opera.core.errors import TrainingError
from opera.core.terminal import shown
from opera.runs.folder import NOT_FINITE_FILE, RunWriter
from opera.training_set.build import TrainingSet

ADVICE = "lower learning_rate, or set precision=fp32"
NAMED = 3
"""Pairs that the message names; the file has all."""


class NotFiniteError(TrainingError):
    """Something of a step is not a finite number.

    Args:
        what: what it is, such as ``"the loss"``.
        step: the step, from 0.
        pair_ids: ``[m]``, the pairs of the batch.
        finite: bool ``[m]``, those whose own value is a number; ``None`` where only the batch has
            one.
    """

    def __init__(
        self, what: str, step: int, pair_ids: NDArray[Any], finite: BoolArray | None = None
    ) -> None:
        self.what, self.step, self.pair_ids, self.finite = what, step, pair_ids, finite
        super().__init__(f"step {step}: {what} is not a finite number; {ADVICE}")


def with_pairs(
    error: NotFiniteError, training_set: TrainingSet, run: RunWriter, kept: int | None
) -> TrainingError:
    """Name the pairs of the batch, and write all of them to ``not_finite.json``.

    Args:
        error: what was noticed.
        training_set: knows their ids.
        run: the run folder.
        kept: step of the newest checkpoint, which is from before; ``None`` where there is none.
    """
    pairs, data = training_set.pairs, training_set.data
    queries = data.queries.ids(training_set.query_rows[pairs.pair_query[error.pair_ids]])
    documents = data.corpus.ids(pairs.pair_doc[error.pair_ids])
    finite = np.zeros(len(error.pair_ids), dtype=bool) if error.finite is None else error.finite
    batch = [
        {"query_id": query, "doc_id": document, "finite": bool(good)}
        for query, document, good in zip(queries, documents, finite, strict=True)
    ]
    run.write_not_finite({"step": error.step + 1, "what": error.what, "pairs": batch})
    bad = [row for row in batch if not row["finite"]]
    named = ", ".join(
        f"{shown(row['query_id'])} with {shown(row['doc_id'])}" for row in bad[:NAMED]
    )
    whose = (
        "of the batch of"
        if error.finite is None
        else f"of {len(bad)} of {len(batch)} pairs, among them"
    )
    checkpoint = (
        "no checkpoint was saved before"
        if kept is None
        else f"the checkpoint of step {kept} is kept"
    )
    return TrainingError(
        f"step {error.step + 1}: {error.what} {whose} {named} is not a finite number (all pairs of "
        "the batch: "
        f"{run.path / NOT_FINITE_FILE}); {checkpoint}; {ADVICE}, and start again with --overwrite"
    )


def check_weights(model: SentenceTransformer, step: int) -> None:
    """Refuse to save a model with weights that are no finite numbers.

    Raises:
        TrainingError: naming the first such parameter.
    """
    for name, tensor in model.state_dict().items():
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.is_floating_point()
            and not torch.isfinite(tensor).all()
        ):
            raise TrainingError(
                f"step {step}: {name} holds values that are not finite numbers, so the model is "
                "not saved; earlier "
                f"checkpoints are kept; {ADVICE}, and start again with --overwrite"
            )
