"""Model folders: spoilt ones encode, or are refused; what is loaded never runs code."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import only_refusals, spoilt, workplace
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model


@pytest.mark.parametrize("kind", ["static", "bert"])
def test_model_folders(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(f"{kind}_model")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    contents = {name: (folder / name).read_bytes() for name in files}

    @given(st.sampled_from(files).flatmap(lambda name: st.tuples(st.just(name), spoilt(contents[name]))))
    def check(change: tuple[Path, bytes]) -> None:
        name, content = change
        with workplace() as place, only_refusals():
            shutil.copytree(folder, place / "model")
            (place / "model" / name).write_bytes(content)
            encoder = Encoder(load_model(place / "model", "cpu"), use_cache=False)
            found = encoder.encode(["t1w2 common3", "nothing known"], "query")
            assert np.isfinite(found).all()

    check()
