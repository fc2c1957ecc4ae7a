"""Array types that say what an argument accepts, whatever its width."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer]
FloatArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]
