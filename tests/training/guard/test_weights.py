"""Mixing the weights of a model before and after training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from opera.core.errors import TrainingError
from opera.retrieval.models import load_model
from opera.training.guard.weights import Weights, mix


@pytest.fixture
def model(bert_model: Path) -> SentenceTransformer:
    return load_model(bert_model, "cpu")


def trained(model: SentenceTransformer) -> Weights:
    """Change every weight, as a training would."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator))
    return Weights.of(model)


def same_bytes(one: Weights, other: Weights) -> bool:
    return one.tensors.keys() == other.tensors.keys() and all(
        tensor.numpy().tobytes() == other.tensors[name].numpy().tobytes() for name, tensor in one.tensors.items()
    )


def test_the_ends_are_the_given_weights_byte_for_byte(model: SentenceTransformer) -> None:
    with torch.no_grad():
        next(model.parameters())[0] = -0.0  # 0·x + -0 is +0
    before = Weights.of(model)
    after = trained(model)
    for share, expected in ((0.0, before), (1.0, after)):
        mix(before, after, share).put_into(model)
        assert same_bytes(Weights.of(model), expected)


def test_between_the_ends_every_parameter_is_interpolated(model: SentenceTransformer) -> None:
    before, after = Weights.of(model), trained(model)
    mix(before, after, 0.25).put_into(model)
    for name, parameter in model.named_parameters():
        expected = 0.75 * before.tensors[name] + 0.25 * after.tensors[name]
        assert torch.equal(parameter, expected), name


def test_a_copy_does_not_follow_the_model(model: SentenceTransformer) -> None:
    before = Weights.of(model)
    copies = {name: tensor.clone() for name, tensor in before.tensors.items()}
    trained(model)
    assert all(torch.equal(before.tensors[name], tensor) for name, tensor in copies.items())


def test_integer_buffers_are_those_of_the_training(model: SentenceTransformer) -> None:
    model[1].register_buffer("seen", torch.tensor(3))
    before = Weights.of(model)
    model[1].seen.fill_(8)
    after = Weights.of(model)
    mix(before, after, 0.5).put_into(model)
    assert model[1].seen.item() == 8
    mix(before, after, 0.0).put_into(model)
    assert model[1].seen.item() == 3


def test_frozen_parameters_are_neither_kept_nor_touched(model: SentenceTransformer) -> None:
    name, parameter = next(model.named_parameters())
    parameter.requires_grad_(False)
    before = Weights.of(model)
    assert name not in before.tensors
    value = parameter.clone()
    mix(before, trained(model), 0.5).put_into(model)
    assert torch.equal(parameter, value)
    parameter.requires_grad_(True)
    with pytest.raises(TrainingError, match="was frozen when training began and is not now"):
        mix(before, Weights.of(model), 0.5)
