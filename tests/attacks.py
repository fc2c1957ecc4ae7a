"""Attacks on whoever loads a model or resumes a run: pickles that make a folder when they are read."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def change(path: Path, **values: Any) -> None:
    """Set entries of a JSON file; ``...`` removes one."""
    changed = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in changed.items() if value is not ...}))


def plant_bomb(folder: Path, mark: Path, asks: bool = True) -> None:
    """Replace the weights by a pickle, and let the model's own configuration ask for it to be run, or not."""
    torch.save({"weight": Bomb(mark)}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "model-decoy.safetensors")
    if asks:
        change(folder / "sentence_bert_config.json", model_args={"weights_only": False, "use_safetensors": False})
    change(folder / "config.json", dtype=None)  # transformers then looks at the weights, as it is asked to
