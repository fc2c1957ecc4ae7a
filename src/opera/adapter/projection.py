"""The residual projection: x + W x, where W starts at zero, so that it starts as the identity."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import torch
from sentence_transformers.base.modules import Dense, Module
from torch import Tensor, nn

from opera.core.rng import generator


class ResidualProjection(Module):  # type: ignore[misc]
    """Adds W x to a vector x; whoever compares the results normalises them.

    Args:
        dimension: length d of a vector.
        rank: W has full rank where it is ``None``, else it is the product of two factors, ``[d, rank]`` and
            ``[rank, d]``, of which the first is zero at the start.
    """

    config_keys: ClassVar = ["dimension", "rank"]

    def __init__(self, dimension: int, rank: int | None = None) -> None:
        super().__init__()
        self.dimension, self.rank = dimension, rank
        if rank is None:
            self.weight = nn.Parameter(torch.zeros(dimension, dimension))
        else:
            self.outer = nn.Parameter(torch.zeros(dimension, rank))
            self.inner = nn.Parameter(torch.zeros(rank, dimension))

    def start(self, seed: int, name: str) -> Self:
        """Draw the inner factor, if there is one, and return the module."""
        if self.rank is not None:
            drawn = generator(seed, f"adapter.{name}").normal(size=(self.rank, self.dimension))
            with torch.no_grad():
                self.inner.copy_(torch.from_numpy(drawn / math.sqrt(self.dimension)))
        return self

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Replace x by x + W x."""
        x = features["sentence_embedding"]
        change = x @ self.weight.T if self.rank is None else (x @ self.inner.T) @ self.outer.T
        return {**features, "sentence_embedding": x + change}

    def matrix(self) -> Tensor:
        """I + W: float32 ``[d, d]``."""
        change = self.weight if self.rank is None else self.outer @ self.inner
        return (torch.eye(self.dimension) + change.detach().cpu()).float()

    def as_dense(self) -> Dense:
        """Return the same projection as a module of sentence-transformers."""
        return Dense(
            self.dimension,
            self.dimension,
            bias=False,
            activation_function=nn.Identity(),
            init_weight=self.matrix(),
        )

    def get_embedding_dimension(self) -> int:
        """Length of a vector."""
        return self.dimension

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Write configuration and weights."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, **kwargs: Any) -> Self:
        """Read what :meth:`save` wrote."""
        subfolder = kwargs.get("subfolder", "")
        model = cls(**cls.load_config(model_name_or_path, subfolder))
        loaded: Self = cls.load_torch_weights(model_name_or_path, subfolder, model=model)
        return loaded
