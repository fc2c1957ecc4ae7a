"""What is measured: cells, each one task, model, length and precision, done by several libraries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

OPERA, DP, LIBRARY, FLAG = "OPERA", "OPERA, dp", "sentence-transformers", "FlagEmbedding"


@dataclass(frozen=True)
class Cell:
    """One comparison.

    Attributes:
        task: ``train`` or ``encode``.
        model: ``minilm`` or ``static``.
        length: tokens of a document; ``None`` for a static model, which reads whole texts.
        precision: ``fp32`` or ``bf16``.
        rounds: turns of each library that count.
        ways: who does the work.
        without_dropout: whether the model has none, to compare the losses of the first step.
    """

    task: str
    model: str
    length: int | None
    precision: str
    rounds: int
    ways: tuple[str, ...] = field(default=(LIBRARY, FLAG, OPERA))
    without_dropout: bool = False

    @property
    def name(self) -> str:
        """Names the cell in files."""
        check = "-check" if self.without_dropout else ""
        return f"{self.task}-{self.model}-{self.length or 'whole'}-{self.precision}{check}"

    @property
    def warm_up(self) -> int:
        """Turns that do not count: a step, which compiles and allocates; an encoder is warm when it is ready."""
        return 1 if self.task == "train" else 0

    @property
    def title(self) -> str:
        """Names the cell in tables."""
        model = {"minilm": "MiniLM", "minilm-8": "MiniLM in batches of 8", "static": "static model"}[self.model]
        return f"{model}, {self.length} tokens, {self.precision}" if self.length else model

    def as_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self)


EVERY = (LIBRARY, FLAG, OPERA, DP)
PAIR = (LIBRARY, OPERA)

CELLS = [
    Cell("train", "minilm", 128, "fp32", 1, without_dropout=True),
    Cell("train", "minilm", 128, "bf16", 5, EVERY),
    Cell("train", "minilm-8", 512, "bf16", 4),
    Cell("train", "minilm", 128, "fp32", 3),
    Cell("train", "static", None, "fp32", 8, (LIBRARY, OPERA, DP)),
    Cell("encode", "minilm", 128, "bf16", 3, PAIR),
    Cell("encode", "minilm", 512, "bf16", 2, PAIR),
    Cell("encode", "minilm", 128, "fp32", 2),
    Cell("encode", "minilm", 512, "fp32", 1, PAIR),
    Cell("encode", "static", None, "fp32", 4, PAIR),
]

QUICK = [
    Cell("train", "minilm", 128, "fp32", 1, without_dropout=True),
    Cell("train", "minilm", 128, "bf16", 2),
    Cell("train", "static", None, "fp32", 4, PAIR),
    Cell("encode", "minilm", 128, "bf16", 1, PAIR),
    Cell("encode", "static", None, "fp32", 2, PAIR),
]
"""For looking whether it works: two or three minutes."""

BATCH = {"minilm": 32, "minilm-8": 8, "static": 512}
"""Pairs per step: 8 of 512 tokens, since 32 take 19 GB in sentence-transformers' trainer."""
STEPS = {"minilm": 32, "minilm-8": 32, "static": 24}
TEXTS = {"minilm": 512, "minilm-8": 512, "static": 0}
"""Documents encoded, the first of the corpus; 0 for all."""
TEMPERATURE, LEARNING_RATE = 0.05, 2e-5


def operations(lengths: list[int], shape: dict[str, int], training: bool) -> float:
    """Floating-point operations of a forward pass over texts without padding; three times that with a backward pass.

    Args:
        lengths: tokens of each text.
        shape: ``parameters`` beside the embeddings, ``layers``, ``width``.
        training: whether a backward pass follows.
    """
    products = 2 * shape["parameters"] * sum(lengths)
    attention = 4 * shape["layers"] * shape["width"] * sum(length**2 for length in lengths)
    return float((products + attention) * (3 if training else 1))
