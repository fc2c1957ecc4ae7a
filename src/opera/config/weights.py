"""Settings of the weights of pairs: clicks, votes or whatever the data bring."""

from __future__ import annotations

from typing import Literal

from opera.core.settings import Settings, setting


class WeightSettings(Settings):
    """What the weights that the data give their pairs are used for."""

    pair_weights: Literal["none", "loss", "scores"] = setting(
        "none",
        "what weights in the data do: none; loss multiplies a pair's loss by its weight, divided by the mean; scores "
        "ranks pairs by weight where sp ranks, and dp starts, by the pretrained similarity",
        "docs/data.md",
    )
    min_pair_weight: float | None = setting(
        None,
        "training pairs of a lower weight are left out, and are no negatives either; auto: none",
        "OPERA",
        ge=0,
    )
