"""What is measured: cells, each one task, model and length, done by several libraries."""

from __future__ import annotations

from dataclasses import dataclass

OPERA, LIBRARY, FLAG = "OPERA", "sentence-transformers", "FlagEmbedding"


@dataclass(frozen=True)
class Cell:
    """One comparison.

    Attributes:
        task: ``train`` or ``encode``.
        model: ``minilm``, ``minilm-8`` (in batches of 8) or ``static``.
        length: most tokens of a document; ``None`` for a static model, which reads whole texts.
        rounds: turns of each library that count.
        precision: ``fp32``, ``bf16``, or ``auto`` for what OPERA chooses on this processor.
        rivals: the other libraries that do the work.
        without_dropout: whether the model has none, to compare the losses of the first step.
    """

    task: str
    model: str
    length: int | None
    rounds: int
    precision: str = "auto"
    rivals: tuple[str, ...] = (LIBRARY,)
    without_dropout: bool = False

    @property
    def name(self) -> str:
        """Names the cell in files."""
        return f"{self.task}-{self.model}-{self.length or 'whole'}-{self.precision}{'-check' * self.without_dropout}"

    @property
    def warm_up(self) -> int:
        """Turns that do not count: a step, which compiles and allocates; an encoder is warm when it is ready."""
        return 1 if self.task == "train" else 0

    @property
    def title(self) -> str:
        """Names the cell in tables."""
        task, batch = {"train": ("training", f"{BATCH[self.model]} × "), "encode": ("encoding", "")}[self.task]
        model = "static model" if self.model == "static" else f"MiniLM, {batch}{self.length} tokens"
        return f"{task}, {model}" + (f", {self.precision}" if self.precision != "auto" else "")


BATCH = {"minilm": 32, "minilm-8": 8, "static": 512}
"""Pairs per step: 8 of 512 tokens, since 32 take 19 GB in sentence-transformers' trainer."""
STEPS = {"minilm": 32, "minilm-8": 32, "static": 24}
TEXTS = {"minilm": 512, "minilm-8": 512, "static": 0}
"""Documents encoded, the first of the corpus; 0 for all."""
TEMPERATURE, LEARNING_RATE = 0.05, 2e-5

BOTH = (LIBRARY, FLAG)
WITH_GOALS = [Cell("train", "minilm", 128, 3), Cell("encode", "minilm", 128, 3)]
CELLS = [
    Cell("train", "minilm", 128, 1, "fp32", BOTH, without_dropout=True),
    Cell("train", "minilm", 128, 5, rivals=BOTH),
    Cell("train", "minilm-8", 512, 4, rivals=BOTH),
    Cell("train", "static", None, 8),
    Cell("encode", "minilm", 128, 3, rivals=BOTH),
    Cell("encode", "minilm", 512, 2),
    Cell("encode", "static", None, 4),
]
IN_FP32 = [Cell("train", "minilm", 128, 3, "fp32", BOTH), Cell("encode", "minilm", 128, 2, "fp32", BOTH)]
"""Also measured on processors whose precision is bf16."""
