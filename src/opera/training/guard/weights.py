"""Weights of one model at two moments, and what lies between them: W(λ) = (1 - λ)·W0 + λ·W1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.core.errors import TrainingError


@dataclass(frozen=True)
class Weights:
    """A copy in CPU memory of everything in a model that training may change; frozen parameters are
    left out.

    Attributes:
        tensors: by their name in the model's ``state_dict``.
    """

    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, model: SentenceTransformer) -> Weights:
        """Copy the weights of a model."""
        frozen = {
            name for name, parameter in model.named_parameters() if not parameter.requires_grad
        }
        return cls(
            {
                name: tensor.detach().to("cpu", copy=True)
                for name, tensor in model.state_dict().items()
                if isinstance(tensor, Tensor) and name not in frozen
            }
        )

    def put_into(self, model: SentenceTransformer) -> None:
        """Overwrite the weights of a model in place."""
        own = model.state_dict()
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                own[name].copy_(tensor)


def mix(untrained: Weights, fine_tuned: Weights, share: float) -> Weights:
    """Interpolate: ``share`` is λ. 0 and 1 give the given weights, byte for byte.

    Integer buffers, such as a count of batches, are those of the fine-tuned model unless λ is 0. Of
    LoRA's matrices the product is mixed: λ·(B A) is (λ·B) A, since one of the two starts as 0.

    Raises:
        TrainingError: if a parameter was frozen before training and is not afterwards.
    """
    if share == 0:
        return untrained
    if share == 1:
        return fine_tuned
    if unknown := fine_tuned.tensors.keys() - untrained.tensors.keys():
        raise TrainingError(
            f"{sorted(unknown)[0]} was frozen when training began and is not now, so its untrained "
            "values are not "
            "kept; unfreeze it before training, or pass guard=False"
        )
    mixed = {}
    for name, after in fine_tuned.tensors.items():
        before = untrained.tensors[name]
        kept = not after.is_floating_point() or ("lora_" in name and before.any())
        mixed[name] = after if kept else (1 - share) * before + share * after
    return Weights(mixed)
