"""Compiled functions where numba may write to no folder, and their threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import caching

from opera.encoder.kernels import cached_njit


def test_without_a_folder_for_compiled_functions_they_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home, and without rights to the package's folder."""

    def refuse(locator: object) -> None:
        raise PermissionError

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    double = cached_njit(nogil=True)(lambda value: 2 * value)
    assert double(21) == 42
    assert not list(Path(__file__).parent.glob("__pycache__/*lambda*.nbi"))


def test_numba_leaves_torch_the_threads_that_it_had() -> None:
    """torchrun, a grid and a container's quota give a process fewer than numba finds."""
    child = "import torch; from opera.encoder.kernels import use_torch_threads; use_torch_threads(); "
    child += "import numba; print(torch.get_num_threads(), numba.get_num_threads())"
    variables = {**os.environ, "OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", child], check=True, capture_output=True, text=True, env=variables)
    assert done.stdout.split() == ["2", "2"]
