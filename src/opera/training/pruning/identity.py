"""Is the batch that reaches the loss the one that was drawn? Its tokens say so."""

from __future__ import annotations

from itertools import pairwise

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.core.errors import TrainingError
from opera.core.terminal import shown
from opera.training.pruning.batches import ADVICE, Given
from opera.training.pruning.scores import Prompts, prompt_of

WHOLE_BATCHES = 10
"""Batches of which every query is compared; of later ones the first and the last."""


class BatchCheck:
    """Compares the queries of a batch with those drawn, as tokens.

    Args:
        model: the model that trains; it tokenises as the trainer's collator does.
        prompts: ``args.prompts``.
        routes: ``args.router_mapping``.
    """

    def __init__(self, model: SentenceTransformer, prompts: Prompts, routes: Prompts) -> None:
        self.model, self.prompts, self.routes = model, prompts, routes
        self._compared = 0

    def __call__(self, queries: dict[str, Tensor], given: Given) -> None:
        """Compare the tokenised queries of a batch with the batch that was drawn.

        Raises:
            TrainingError: if they differ.
        """
        found = token_rows(queries)
        if found is None:  # a model that reads no tokens
            return
        pair_ids, rows = given.pair_ids, given.source.rows
        places = range(len(pair_ids)) if self._compared < WHOLE_BATCHES else sorted({0, len(pair_ids) - 1})
        self._compared += 1
        texts = rows.queries(pair_ids[list(places)])
        column = rows.columns[0]
        prompt, route = (prompt_of(given_as, rows.name, column) or None for given_as in (self.prompts, self.routes))
        expected = token_rows(self.model.preprocess(texts, prompt=prompt, task=route))
        if len(found) != len(pair_ids):
            raise TrainingError(
                f"PairPruning: the loss got a batch of {len(found)} queries where {len(pair_ids)} were drawn; {ADVICE}"
            )
        for place, text, tokens in zip(places, texts, expected or [], strict=True):
            if found[place] != tokens:
                raise TrainingError(
                    f"PairPruning: the loss got another query than was drawn at row {place} of draw {given.step} "
                    f"({shown(text)}); {ADVICE}"
                )


def token_rows(features: dict[str, Tensor]) -> list[list[int]] | None:
    """Return each row's token ids without padding; ``None`` where a model reads no tokens."""
    ids = features.get("input_ids")
    if ids is None:
        return None
    if "offsets" in features:  # rows of a static model, one after the other
        bounds = [*features["offsets"].tolist(), len(ids)]
        flat = ids.tolist()
        return [flat[start:stop] for start, stop in pairwise(bounds)]
    if "cu_seq_lens_q" in features:  # rows of a transformer without padding, likewise
        bounds, flat = features["cu_seq_lens_q"].tolist(), ids.ravel().tolist()
        return [flat[start:stop] for start, stop in pairwise(bounds)]
    mask = features.get("attention_mask")
    kept = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    return [row[keep].tolist() for row, keep in zip(ids, kept, strict=True)]
