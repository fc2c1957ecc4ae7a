"""Batches hold every text once, within the budget."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opera.encoder.forward import token_batches


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 100), st.booleans())
def test_every_text_is_in_one_batch_within_the_budget(lengths: list[int], most_tokens: int, padded: bool) -> None:
    batches = token_batches(np.array(lengths, np.int64), most_tokens, padded)
    assert sorted(number for batch in batches for number in batch.tolist()) == list(range(len(lengths)))
    in_order = [lengths[number] for batch in batches for number in batch.tolist()]
    assert in_order == sorted(lengths, reverse=True)
    for number, batch in enumerate(batches):
        cost = tokens(lengths, batch, padded)
        assert cost <= most_tokens or len(batch) == 1
        if number + 1 < len(batches):
            more = [*batch, batches[number + 1][0]]
            ends = lengths[batch[-1]] > 0 and lengths[more[-1]] == 0  # texts without tokens are by themselves
            assert ends or tokens(lengths, more, padded) > most_tokens, "no batch is smaller than it need be"


def tokens(lengths: list[int], batch: object, padded: bool) -> int:
    each = [max(1, lengths[number]) for number in batch]  # type: ignore[attr-defined]
    return max(each) * len(each) if padded else sum(each)
