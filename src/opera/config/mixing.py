"""Settings of runs on several data sets."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator

from opera.core.settings import Settings, setting


def _check_mix(value: str) -> str:
    """Check the form of ``mix``; which names there are, only the data say."""
    if value not in ("proportional", "equal"):
        shares_by_name(value)
    return value


def shares_by_name(mix: str) -> dict[str, float]:
    """Read ``NAME=SHARE,NAME=SHARE``.

    Raises:
        ValueError: for anything else.
    """
    rule = "must be proportional, equal, or NAME=SHARE,... with shares above 0, such as nfcorpus=2,scifact=1"
    shares: dict[str, float] = {}
    for part in mix.split(","):
        name, equals, number = part.strip().rpartition("=")
        try:
            share = float(number)
        except ValueError:
            raise ValueError(rule) from None
        if not (equals and name and math.isfinite(share) and share > 0) or name in shares:
            raise ValueError(rule)
        shares[name] = share
    return shares


class MixingSettings(Settings):
    """How several data sets are drawn in one run."""

    mix: Annotated[str, AfterValidator(_check_mix)] = setting(
        "proportional",
        "how often each of several data sets is drawn: proportional to its training pairs, equal, or by shares, "
        "NAME=2,NAME=1 (--mix)",
        "OPERA",
    )
    one_set_per_step: bool = setting(
        False,
        "draw all pairs of a step from one data set, so that in-batch negatives are its own",
        "FlagEmbedding",
    )
