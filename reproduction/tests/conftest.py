"""The fixtures of the product's tests."""

from __future__ import annotations

from conftest import *  # noqa: F403
from conftest import _libraries_are_not_garbage, _own_cache, _signals_as_on_a_terminal  # noqa: F401
