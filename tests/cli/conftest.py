"""A finished run for the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

import opera
from opera.runs.folder import Run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    out = tmp_path_factory.mktemp("cli") / "run"
    return opera.adapt(beir, model=static_model, out=out, method="sp", k=0.5, max_steps=8, save_steps=8)
