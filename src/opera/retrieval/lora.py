"""LoRA through peft: add, merge or save matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from opera.config.training import LoraOptions
from opera.core.errors import SettingError
from opera.core.terminal import shortened

NAME = "default"
"""peft's name for the matrices."""


def add_lora(model: SentenceTransformer, options: LoraOptions, seed: int, source: str) -> None:
    """Freeze the transformer of a model and add trainable matrices, without a change of embeddings.

    The seed initialises the matrices A; B starts as 0. ``source`` is the model's name as the user
    gave it; peft saves it with the matrices.

    Raises:
        SettingError: if the model has no transformer or lacks the target layers.
    """
    from peft import LoraConfig, TaskType

    if getattr(model[0], "auto_model", None) is None:
        raise SettingError(
            "lora: adds matrices to the layers of a transformer, but "
            f"{type(model[0]).__name__} is not a transformer; leave the setting out"
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
    with torch.random.fork_rng():  # peft uses the global random state
        try:
            model.add_adapter(config, NAME)
        except ValueError as error:
            raise SettingError(f"lora: {shortened(' '.join(str(error).split()), 200)}") from None
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name and parameter.any():  # the distribution that peft uses
            values = nn.init.kaiming_uniform_(
                torch.empty(parameter.shape), a=math.sqrt(5), generator=generator
            )
            parameter.data.copy_(values)
    model.to(model.device).train(was_training)


def has_lora(model: SentenceTransformer) -> bool:
    """Whether a model has LoRA matrices."""
    return bool(_layers(model))


def lora_parameters(model: SentenceTransformer) -> int:
    """Count the parameters of the LoRA matrices."""
    return sum(parameter.numel() for name, parameter in model.named_parameters() if "lora_" in name)


@contextmanager
def merged(model: SentenceTransformer) -> Iterator[None]:
    """Inside the block, the model is plain: W + alpha/r · B A replaces W and the matrices."""
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


def _layers(model: SentenceTransformer) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
