"""Settings of runs on several data sets."""

from __future__ import annotations

import math
import re
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
    found = re.findall(r"(?:^|,) *([^,]+)=([0-9.eE+-]+) *(?=,|$)", mix)
    try:
        shares = {name: float(number) for name, number in found}
        fit = len(shares) == mix.count(",") + 1 and all(0 < x < math.inf for x in shares.values())
    except ValueError:
        fit = False
    if not fit:
        raise ValueError(
            "must be proportional, equal, or NAME=SHARE,... with shares above 0, such as nfcorpus=2,scifact=1"
        )
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
