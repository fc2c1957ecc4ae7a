"""What weights of pairs do in training: multiply losses, start the pair scores, or leave pairs
out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import WeightSettings
from opera.config.recipe import Recipe
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
        if settings.pair_weights != "none":
            raise SettingError(
                f"pair_weights={settings.pair_weights}: the pairs of {data.title} have no weights; "
                "leave the setting out"
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


def with_weights_note(data: RetrievalData, settings: WeightSettings) -> RetrievalData:
    """Add a note on the weights; of several data sets, one without weights gets a note where they
    are used.
    """
    if data.sets:
        return for_each(lambda own: with_weights_note(own, settings), data)
    weights = data.training_split().weights
    if weights is None:
        if settings.pair_weights == "none":
            return data
        note = "training pairs have no weights: pair_weights changes nothing here"
    else:
        used = {
            "none": "not used: pair_weights=loss or scores uses them",
            "loss": "used in the loss",
        }
        what = used.get(settings.pair_weights, "used as the start of the pair scores")
        note = f"training pairs have weights from {weights.min():g} to {weights.max():g}, {what}"
    return replace(data, notes=(*data.notes, note))


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
