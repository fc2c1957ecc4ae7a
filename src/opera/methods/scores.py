"""The scores of each pair, from the base model at first and later from training."""

from __future__ import annotations

from typing import Any

import numpy as np

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.data.pairs import TrainingPairs


class PairScores:
    """Latest similarity and contrastive loss of every pair, 8 bytes per pair.

    Attributes:
        similarity: float32 ``[N]``, cosine of query and positive document (the paper's **p**).
        loss: float32 ``[N]``, contrastive loss of the pair, in nats.
        cbs: float32 ``[N]``, CBS by the base model, or ``None``; training does not change it.
        smallest_pool: the fewest documents that CBS ranked a pair among, or ``None``.
    """

    smallest_pool: int | None = None

    def __init__(
        self,
        pairs: TrainingPairs,
        similarity: FloatArray,
        loss: FloatArray,
        cbs: FloatArray | None = None,
    ) -> None:
        self.pairs = pairs
        self.similarity = np.array(similarity, dtype=np.float32)
        self.loss = np.array(loss, dtype=np.float32)
        self.cbs = None if cbs is None else np.array(cbs, dtype=np.float32)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Overwrite the scores of pairs ``[B]``; the last entry of a repeated pair counts."""
        self.similarity[pair_ids], self.loss[pair_ids] = similarity, loss

    def subset(self, kept: BoolArray, kept_pairs: TrainingPairs) -> PairScores:
        """Return the scores of pairs ``kept``, bool ``[N]``, for their subset ``kept_pairs``."""
        cbs = None if self.cbs is None else self.cbs[kept]
        return PairScores(kept_pairs, self.similarity[kept], self.loss[kept], cbs)

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays that training changes."""
        return {"similarity": self.similarity.copy(), "loss": self.loss.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.similarity = np.array(state["similarity"], dtype=np.float32)
        self.loss = np.array(state["loss"], dtype=np.float32)
