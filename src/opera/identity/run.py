"""Which run is this: its settings, and the contents of everything that it reads."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from opera.config.recipe import Recipe
from opera.core.errors import RunFolderError
from opera.core.terminal import shortened, shown
from opera.data import RetrievalData
from opera.data.combined import data_sets

FILES = {"decisions", "teacher_scores", "query_vectors", "document_vectors"}
"""Settings that name a file. Its contents count, not its name."""


def run_identity(
    recipe: Recipe, data: RetrievalData, model_fingerprint: str, processes: int = 1
) -> dict[str, Any]:
    """Return the facts that must be equal to resume a run, or to reuse a finished one.

    Args:
        recipe: the user's settings.
        data: the data with all splits, decisions and teacher scores.
        model_fingerprint: the base model's, with its prompts and lengths, or that of its vectors.
        processes: the number of processes that train together.
    """
    settings, teacher = recipe.train, data.teacher
    identity = {
        **recipe.identity(),
        "processes": processes,
        "data_fingerprint": data.fingerprint,
        "model_fingerprint": model_fingerprint,
    }
    if settings.decisions:
        identity["decided_pairs"] = _decided_pairs(data)
    if teacher is not None and settings.teacher_scores is not None:
        identity["teacher_fingerprint"] = teacher.fingerprint
    return identity


def _decided_pairs(data: RetrievalData) -> int:
    """A checksum of the training pairs and of the decisions about them."""
    number = data.training_split().pairs().fingerprint
    for data_set in data_sets(data):
        if data_set.confirmed is not None:
            number = zlib.crc32(data_set.confirmed.tobytes(), number)
    return number


def refuse_other_run(
    option: str, recorded: Mapping[str, Any], identity: Mapping[str, Any], advice: str
) -> None:
    """Refuse a run that had another model, other data or other settings.

    Args:
        option: the option and folder that start the message.
        recorded: the identity of the run.
        identity: the identity of this call.
        advice: how to go on.

    Raises:
        RunFolderError: with every difference.
    """
    names = {*recorded, *identity} - FILES
    differences = [
        f"{shortened(name)}: the run has {shown(recorded.get(name))}, this call "
        f"{shown(identity.get(name))}"
        for name in sorted(names, key=lambda name: ("fingerprint" in name, name))
        if recorded.get(name) != identity.get(name)
    ]
    if differences:
        raise RunFolderError(f"{option}: was started differently; {advice}:", *differences)
