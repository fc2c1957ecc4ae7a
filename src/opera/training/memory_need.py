"""How much memory does a training step need, and how much is there? Estimates, for advice after it ran out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from opera.config.training import TrainSettings
from opera.core.settings import resolved
from opera.encoder.forward import pays_for_padding

USABLE = 0.8
"""Share of the free memory that a suggestion may fill."""
OPTIMIZER_BYTES = 12
"""Per parameter that trains: its gradient and AdamW's two moments, in float32."""
GIGABYTE = 1e9


@dataclass(frozen=True)
class Need:
    """What a step needs.

    Attributes:
        fixed: bytes whatever the batch: gradients and the optimizer's state.
        per_token: bytes per token in a forward pass, kept until the backward pass.
        pair_tokens: tokens of a query and its documents, at most.
        passage_tokens: tokens of a document, at most.
    """

    fixed: float
    per_token: float
    pair_tokens: int
    passage_tokens: int

    def of_pairs(self, pairs: int) -> float:
        """Bytes of a batch that is embedded at once."""
        return self.fixed + pairs * self.pair_tokens * self.per_token

    def texts_within(self, free: float) -> int:
        """The texts per pass that fit into free memory: a power of two, 0 where not even one does."""
        fitting = int((USABLE * free - self.fixed) / (self.passage_tokens * self.per_token))
        return 1 << (fitting.bit_length() - 1) if fitting > 0 else 0


def need_of(model: SentenceTransformer, settings: TrainSettings) -> Need | None:
    """Estimate from the sizes of a transformer; ``None`` for other models.

    A layer keeps about (18 h + 4 i) half-precision numbers' worth of bytes per token with hidden size h and
    intermediate size i (Korthikanti et al., arXiv:2205.05198, Section 4.1), twice that in float32, and its attention
    weights where they are kept: on a GPU by eager attention, on a CPU where texts are not packed.
    """
    config: Any = getattr(getattr(model[0], "auto_model", None), "config", None)
    hidden, layers = (
        getattr(config, "hidden_size", None),
        getattr(config, "num_hidden_layers", None),
    )
    if hidden is None or layers is None:
        return None
    on_cuda = model.device.type == "cuda"
    precise = (
        1
        if settings.precision in ("bf16", "fp16") or (settings.precision == "auto" and on_cuda)
        else 2
    )
    query, passage = settings.max_query_length, settings.max_passage_length
    limit = model.max_seq_length or passage
    query, passage = min(query, limit), min(passage, limit)
    intermediate = getattr(config, "intermediate_size", None) or 4 * hidden
    of_layer = precise * (18 * hidden + 4 * intermediate)
    if settings.attn_implementation == "eager" or (not on_cuda and pays_for_padding(model)):
        of_layer += precise * 5 * getattr(config, "num_attention_heads", 1) * passage
    per_token = layers * of_layer
    if settings.gradient_checkpointing:
        per_token = precise * 2 * hidden * layers + of_layer
    trained = sum(part.numel() for part in model.parameters() if part.requires_grad)
    documents = settings.train_group_size
    return Need(OPTIMIZER_BYTES * trained, per_token, query + documents * passage, passage)


def free_memory(device: str) -> float | None:
    """Bytes that this process may still take; ``None`` where the system does not say."""
    if device == "cuda" and torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    found = [size for size in (_of_machine(), _of_group()) if size is not None]
    return min(found, default=None)


def pairs_of(settings: TrainSettings) -> int:
    """Pairs per batch and device."""
    return resolved(settings.per_device_train_batch_size)


def _of_machine(place: Path = Path("/proc/meminfo")) -> float | None:
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", place.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else 1024.0 * int(found[1])


def _of_group(home: Path = Path("/sys/fs/cgroup")) -> float | None:
    """What a container's limit leaves."""
    try:
        most, used = (
            (home / name).read_text().strip() for name in ("memory.max", "memory.current")
        )
    except OSError:
        return None
    return float(int(most) - int(used)) if most.isdecimal() and used.isdecimal() else None
