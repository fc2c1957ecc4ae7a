"""Ranges of ranks: how is ``LO:HI`` read?"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from opera.core.arguments import MOST

DEFAULT_RANGE = (10, 100)
"""Ranks that hard negatives and hard false positives come from by default."""

_RANK = re.compile(r" *\d{1,10} *", re.ASCII)


def _parse_range(value: Any) -> Any:
    """Read ``LO:HI`` as a pair of ranks."""
    if isinstance(value, str):
        low, colon, high = value.partition(":")
        if not (colon and _RANK.fullmatch(low) and _RANK.fullmatch(high)):
            raise ValueError("must be LO:HI, two ranks such as 10:100")
        value = (int(low), int(high))
    if isinstance(value, tuple | list) and len(value) == 2 and all(type(v) is int for v in value):
        if not 1 <= value[0] <= value[1] <= MOST:
            raise ValueError(
                "must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included)"
            )
        return tuple(value)
    raise ValueError("must be LO:HI, two ranks such as 10:100")


RankRange = Annotated[tuple[int, int], BeforeValidator(_parse_range)]
