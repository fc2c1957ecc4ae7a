"""LoRA through peft: matrices added to a model, merged with it, and saved by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import nn

from opera.config.training import LoraOptions
from opera.core.errors import ModelError, SettingError
from opera.core.terminal import shortened

TRAINED_FILE = "trained.safetensors"
"""In a checkpoint: all that trains."""
NAME = "default"
"""peft's name of the matrices."""


def add_lora(model: SentenceTransformer, options: LoraOptions, seed: int, source: str) -> None:
    """Freeze the transformer of a model, and add matrices that train; embeddings stay as they are.

    The seed is that of the matrices A; B starts as 0. ``source``, what the user called the model,
    is written beside matrices that are saved by themselves.

    Raises:
        SettingError: if the model has no transformer, or no such layers.
    """
    from peft import LoraConfig, TaskType

    if getattr(model[0], "auto_model", None) is None:
        raise SettingError(
            "lora: adds matrices to the layers of a transformer, and "
            f"{type(model[0]).__name__} has none; leave it out"
        )
    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        base_model_name_or_path=source,
        r=options.r,
        lora_alpha=options.scale,  # type: ignore[arg-type]
        lora_dropout=options.dropout,
        target_modules=options.targets,
    )
    was_training = model.training
    with torch.random.fork_rng():  # peft draws from the global stream
        try:
            model.add_adapter(config, NAME)
        except ValueError as error:
            raise SettingError(f"lora: {shortened(' '.join(str(error).split()), 200)}") from None
    generator = torch.Generator().manual_seed(seed)
    for name, part in model.named_parameters():
        if "lora_" in name and part.any():  # as peft draws them
            drawn = nn.init.kaiming_uniform_(
                torch.empty(part.shape), a=math.sqrt(5), generator=generator
            )
            part.data.copy_(drawn)
    model.to(model.device).train(was_training)


def has_lora(model: SentenceTransformer) -> bool:
    """Whether matrices were added to a model."""
    return bool(_layers(model))


def lora_parameters(model: SentenceTransformer) -> int:
    """Count the parameters of the matrices."""
    return sum(part.numel() for name, part in model.named_parameters() if "lora_" in name)


@contextmanager
def merged(model: SentenceTransformer) -> Iterator[None]:
    """Inside, the model is a plain one: W + alpha/r · B A takes the place of W and matrices."""
    layers, transformer = _layers(model), model[0].auto_model
    weights = {name: layer.get_base_layer().weight.data for name, layer in layers.items()}
    configs = transformer.__dict__.pop("peft_config")
    transformer._hf_peft_config_loaded = False
    for name, layer in layers.items():
        base = layer.get_base_layer()
        base.weight.data = weights[name] + layer.get_delta_weight(NAME).to(weights[name].dtype)
        model.set_submodule(name, base)
    try:
        yield
    finally:
        for name, layer in layers.items():
            layer.get_base_layer().weight.data = weights[name]
            model.set_submodule(name, layer)
        transformer._hf_peft_config_loaded, transformer.peft_config = True, configs


def save_trained(model: SentenceTransformer, folder: Path) -> None:
    """Write all that trains to a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        name: part.detach().contiguous()
        for name, part in model.named_parameters()
        if part.requires_grad
    }
    save_file(parts, folder / TRAINED_FILE)


def load_trained(model: SentenceTransformer, folder: Path) -> None:
    """Read what :func:`save_trained` wrote.

    Raises:
        ModelError: if the file holds other parameters than those that train.
    """
    parameters = load_file(folder / TRAINED_FILE)
    trained = {name for name, part in model.named_parameters() if part.requires_grad}
    if parameters.keys() != trained:
        raise ModelError(f"{folder / TRAINED_FILE}: holds other parameters than those that train")
    model.load_state_dict(parameters, strict=False)


def _layers(model: SentenceTransformer) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
