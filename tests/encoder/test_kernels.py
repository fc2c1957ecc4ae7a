"""Compiled functions where numba may write to no folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba.core import caching

from opera.encoder.kernels import kept_njit


def test_without_a_folder_for_compiled_functions_they_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home, and without rights to the package's folder."""

    def refuse(locator: object) -> None:
        raise PermissionError

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    double = kept_njit(nogil=True)(lambda value: 2 * value)
    assert double(21) == 42
    assert not list(Path(__file__).parent.glob("__pycache__/*lambda*.nbi"))
