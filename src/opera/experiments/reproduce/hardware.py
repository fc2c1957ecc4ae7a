"""What a machine computes in a second, and what a model asks of it: for estimates before anything runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opera.core.errors import OperaError
from opera.core.strict_json import read_json
from opera.retrieval.locate import locate_model

FLOAT_BYTES = 4
A100_COUNT, A100_FLOPS, UTILISATION = 8, 312e12, 0.35
"""NVIDIA's published fp16 peak of an A100, and the share of it that we assume."""
PAPER_RATE = 2.43
"""Steps per second of plain fine-tuning on FiQA with 8 A100s (Table 5)."""
SIZE, REPEATS = 1024, 8
PROBE_TEXTS, PROBE_WORDS = 32, 120


@dataclass(frozen=True)
class ModelShape:
    """The size of a model.

    Attributes:
        parameters: all of them.
        computing: those of its layers, which every token is multiplied with; embedding tables are looked up.
        dimension: of its embeddings.
    """

    parameters: int
    computing: int
    dimension: int


KNOWN_SHAPES = {
    "BAAI/bge-small-en-v1.5": ModelShape(33_400_000, 21_300_000, 384),
    "BAAI/bge-base-en-v1.5": ModelShape(109_000_000, 85_100_000, 768),
    "BAAI/bge-large-en-v1.5": ModelShape(335_000_000, 302_300_000, 1024),
    "BAAI/bge-m3": ModelShape(568_000_000, 302_300_000, 1024),
    "Qwen/Qwen3-Embedding-0.6B": ModelShape(596_000_000, 440_500_000, 1024),
}


@dataclass(frozen=True)
class Machine:
    """How fast a machine is with one model.

    Attributes:
        name: what to call it.
        tokens: tokens per second through the model, forward.
        flops: multiplications and additions per second, for the search.
        least_step: seconds that a step takes at least.
        source: where the figures come from.
    """

    name: str
    tokens: float
    flops: float
    least_step: float
    source: str


def local_model(model: str) -> Path | None:
    """The folder of a model that is on this machine; ``None`` where it must be fetched first."""
    place = locate_model(model)
    if isinstance(place, Path):
        return place
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(place, "config.json")
    return Path(config).parent if isinstance(config, str) else None


def model_shape(model: str) -> ModelShape | None:
    """The size of a model that is known or on this machine; ``None`` for another one on the hub."""
    if model in KNOWN_SHAPES:
        return KNOWN_SHAPES[model]
    folder = local_model(model)
    if folder is None:
        return None
    config = _config(folder)
    hidden, layers = int(config.get("hidden_size", 0)), int(config.get("num_hidden_layers", 0))
    inner = int(config.get("intermediate_size", 4 * hidden))
    weights = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    return ModelShape(weights // FLOAT_BYTES, layers * (4 * hidden**2 + 2 * hidden * inner), hidden or 384)


def a100s(shape: ModelShape, papers_model: bool) -> Machine:
    """Eight A100s, by their published peak; with a model of the paper, no faster than the paper's own steps."""
    flops = A100_COUNT * A100_FLOPS * UTILISATION
    least = 1 / PAPER_RATE if papers_model else 0.0
    source = f"8 × {A100_FLOPS / 1e12:.0f} TFLOP/s fp16 (published peak) × {UTILISATION:.0%} assumed utilisation"
    if papers_model:
        source += f"; a step takes no less than the paper's 1/{PAPER_RATE} s (Table 5; DP: 5% more, on FEVER 17%)"
    return Machine("8 × A100", flops / (2 * max(shape.computing, 1)), flops, least, source)


def this_machine(model: str, shape: ModelShape) -> Machine:
    """This machine: by texts through the model where it is here, else by its products of matrices."""
    from opera.retrieval.device import describe_device, pick_device

    device = pick_device()
    flops = _matrix_flops(device)
    if local_model(model) is None:
        source = f"{flops / 1e9:,.0f} GFLOP/s of matrix products measured here; the model itself is not here"
        return Machine(describe_device(device), flops / (2 * max(shape.computing, 1)), flops, 0.0, source)
    tokens = _model_tokens(model, device)
    return Machine(
        describe_device(device), tokens, flops, 0.0, f"{tokens:,.0f} tokens/s through the model measured here"
    )


def _matrix_flops(device: str) -> float:
    """Floating-point operations per second of products of matrices, fp16 on CUDA and fp32 elsewhere."""
    import torch

    dtype = torch.float16 if device == "cuda" else torch.float32
    matrix = torch.ones(SIZE, SIZE, device=device, dtype=dtype)
    for repeats in (1, REPEATS):  # the first warms up
        start = time.perf_counter()
        for _ in range(repeats):
            product = matrix @ matrix
        float(product[0, 0])  # waits for the device
    return 2.0 * SIZE**3 * REPEATS / (time.perf_counter() - start)


def _model_tokens(model: str, device: str) -> float:
    """Tokens per second through a model, forward, on texts of :data:`PROBE_WORDS` words."""
    from opera.retrieval.encoder import Encoder
    from opera.retrieval.models import load_model

    loaded = load_model(model, device)
    encoder = Encoder(loaded, "auto", PROBE_TEXTS, use_cache=False)
    texts = [" ".join(["people"] * PROBE_WORDS)] * PROBE_TEXTS  # one token per word
    encoder.encode(texts[:4], "document")  # warm up
    start = time.perf_counter()
    encoder.encode(texts, "document")
    return PROBE_TEXTS * PROBE_WORDS / (time.perf_counter() - start)


def _config(folder: Path) -> dict[str, Any]:
    for path in (folder / "config.json", folder / "0_Transformer" / "config.json"):
        try:
            found = read_json(path)
        except (OSError, ValueError, OperaError):
            continue
        if isinstance(found, dict) and "hidden_size" in found:
            return found
    return {}
