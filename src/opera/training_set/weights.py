"""What weights of pairs do in training: multiply losses, start the pair scores, or leave pairs
out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opera.config.recipe import Recipe
from opera.config.weights import WeightSettings
from opera.core.arrays import FloatArray
from opera.core.errors import SettingError
from opera.data import RetrievalData
from opera.data.combined import for_each


def check_weights(data: RetrievalData, recipe: Recipe) -> None:
    """Refuse weights that the data do not have, or that the method cannot use.

    Args:
        data: with the train split to use.
        recipe: all settings.

    Raises:
        SettingError: with the reason.
    """
    settings, weights = recipe.train, data.training_split().weights
    if weights is None:
        for name, unset in (("pair_weights", "none"), ("min_pair_weight", None)):
            if (value := getattr(settings, name)) != unset:
                raise SettingError(
                    f"{name}={value}: the pairs of {data.title} have no weights; leave the setting "
                    f"out"
                )
    elif settings.pair_weights == "loss" and not weights.any():
        raise SettingError(f"pair_weights=loss: every training pair of {data.title} has weight 0")
    if settings.pair_weights == "scores" and not recipe.method_class.needs_scores(
        recipe.method_settings
    ):
        raise SettingError(
            f"pair_weights=scores: method {recipe.method} uses no pair scores; use "
            f"pair_weights=loss"
        )


def without_light_pairs(data: RetrievalData, settings: WeightSettings) -> RetrievalData:
    """Move training pairs below ``min_pair_weight`` from train to ``held_out``, and add a note on
    the weights.

    Of several data sets, one without weights stays as it is, with a note.

    Raises:
        SettingError: if no pair of a data set is left.
    """
    if data.sets:
        return for_each(lambda own: without_light_pairs(own, settings), data)
    relevant, least = data.training_split(), settings.min_pair_weight
    if relevant.weights is None:
        if least is None and settings.pair_weights == "none":
            return data
        note = (
            "training pairs have no weights: pair_weights and min_pair_weight change nothing here"
        )
        return replace(data, notes=(*data.notes, note))
    used = {"none": "not used: pair_weights=loss or scores uses them", "loss": "used in the loss"}
    what = used.get(settings.pair_weights, "used as the start of the pair scores")
    notes = [
        f"training pairs have weights from {relevant.weights.min():g} to "
        f"{relevant.weights.max():g}, {what}"
    ]
    if least is None:
        return replace(data, notes=(*data.notes, *notes))
    train = data.split("train")
    light = (train.weights_or_ones() < least) & (train.grades > 0)
    if (light | (train.grades <= 0)).all():
        raise SettingError(
            f"min_pair_weight={least:g}: every training pair of {data.title} is lighter, "
            f"{relevant.weights.max():g} at most; lower it"
        )
    notes.append(
        f"min_pair_weight={least:g}: {int(light.sum()):,} of {len(relevant.doc_rows):,} training "
        f"pairs left train"
    )
    gone = train.select_judgements(light)
    held_out = gone if data.held_out is None else gone.union(data.held_out)
    return replace(
        data,
        splits={**data.splits, "train": train.select_judgements(~light)},
        held_out=held_out if len(held_out.doc_rows) else None,
        notes=(*data.notes, *notes),
    )


def loss_weights(
    weights: FloatArray | None, settings: WeightSettings
) -> NDArray[np.float32] | None:
    """Return what the loss of each pair is multiplied by, of mean 1: float32 ``[N]``; ``None`` for
    nothing.
    """
    if weights is None or settings.pair_weights != "loss":
        return None
    exact = np.asarray(weights, dtype=np.float64)
    return np.asarray(exact / exact.mean(), dtype=np.float32)


def scores_by_weight(weights: FloatArray, similarity: FloatArray) -> NDArray[np.float32]:
    """Return similarities in the order of the weights, both ``[N]``: float32 ``[N]``.

    The pair with the highest weight gets the highest similarity of the untrained model, and so on:
    the values keep the scale of the cosines that training observes. Equal weights stay in the order
    of their own similarities.
    """
    ordered = np.empty(len(weights), dtype=np.float32)
    ordered[np.lexsort((similarity, weights))] = np.sort(similarity)
    return ordered
