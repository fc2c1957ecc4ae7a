"""Is the batch that reaches the loss the one that was drawn? Its tokens say so."""

from __future__ import annotations

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
        if "input_ids" not in queries:  # a model that reads no tokens
            return
        pair_ids, rows, count = given.pair_ids, given.source.rows, row_count(queries)
        if count != len(pair_ids):
            raise TrainingError(
                f"PairPruning: the loss got a batch of {count} queries where {len(pair_ids)} were drawn; {ADVICE}"
            )
        places = list(range(count)) if self._compared < WHOLE_BATCHES else sorted({0, count - 1})
        self._compared += 1
        column, texts = rows.columns[0], rows.queries(pair_ids[places])
        prompt, route = (
            prompt_of(given_as, rows.name, column) or None
            for given_as in (self.prompts, self.routes)
        )
        expected = token_rows(
            self.model.preprocess(texts, prompt=prompt, task=route), list(range(len(texts)))
        )
        for place, text, one, other in zip(
            places, texts, token_rows(queries, places), expected, strict=True
        ):
            if one != other:
                raise TrainingError(
                    f"PairPruning: the loss got another query than was drawn at row {place} of draw {given.step} "
                    f"({shown(text)}); {ADVICE}"
                )


def row_count(features: dict[str, Tensor]) -> int:
    """Count the rows of a tokenised column."""
    if "cu_seq_lens_q" in features:  # rows of a transformer without padding, one after the other
        return len(features["cu_seq_lens_q"]) - 1
    return len(
        features["offsets" if "offsets" in features else "input_ids"]
    )  # of a static model, likewise


def token_rows(features: dict[str, Tensor], places: list[int]) -> list[list[int]]:
    """Return the token ids of some rows of a tokenised column, without padding."""
    ids = features["input_ids"]
    if "cu_seq_lens_q" in features or "offsets" in features:
        flat = ids.ravel()
        bounds = features["cu_seq_lens_q"] if "cu_seq_lens_q" in features else features["offsets"]
        starts = [*bounds.tolist(), len(flat)]
        return [flat[starts[place] : starts[place + 1]].tolist() for place in places]
    mask = features.get("attention_mask")
    rows = ids[places]
    kept = torch.ones_like(rows, dtype=torch.bool) if mask is None else mask[places].bool()
    return [row[keep].tolist() for row, keep in zip(rows, kept, strict=True)]
