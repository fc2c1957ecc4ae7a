"""Kept tokens: the same inputs as the model's own tokenising, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer

from opera.training.tokens import TokenCache, tokens_kept

TEXTS = ["cats purr and purr", "", "storms rain", "cats purr and purr", "a dog"]


def test_inputs_are_those_of_the_model(static_model: Path) -> None:
    module = SentenceTransformer(str(static_model), device="cpu")[0]
    for most_tokens in (1_000, 3, 0):
        cache = TokenCache(module, most_tokens)
        for prompt in (None, "query: "):
            for texts in (TEXTS, TEXTS[::-1], TEXTS[1:2], []):
                expected, found = module.preprocess(texts, prompt=prompt), cache(texts, prompt=prompt)
                if texts:
                    assert all(torch.equal(expected[name], found[name]) for name in expected)
                    assert [found[name].dtype for name in found] == [torch.int64, torch.int64]


def test_a_text_is_tokenised_once_while_there_is_room(static_model: Path) -> None:
    tokenised: list[str] = []

    class Counting(TokenCache):
        def _tokenise(self, texts):  # type: ignore[no-untyped-def]
            tokenised.extend(texts)
            return super()._tokenise(texts)

    module = SentenceTransformer(str(static_model), device="cpu")[0]
    cache = Counting(module)
    cache(TEXTS)
    cache(TEXTS)
    assert sorted(tokenised) == sorted(set(TEXTS))
    tokenised.clear()
    cache = Counting(module, most_tokens=0)
    cache(TEXTS[2:3])
    cache(TEXTS[2:3])
    assert tokenised == TEXTS[2:3] * 2


def test_the_model_is_as_before_afterwards(static_model: Path) -> None:
    model = SentenceTransformer(str(static_model), device="cpu")
    with tokens_kept(model):
        assert isinstance(model[0].preprocess, TokenCache)
        inside = model.encode(TEXTS)
    assert "preprocess" not in vars(model[0])
    assert (model.encode(TEXTS) == inside).all()
