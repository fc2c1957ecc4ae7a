"""Array types for arguments, of any width."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer]
FloatArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]
