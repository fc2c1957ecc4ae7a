"""Settings, labels of grids, measures and paths: whatever they hold, they are read or refused in a sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fuzzing import VALUES, only_refusals
from opera.config.recipe import make_recipe
from opera.config.training import TrainSettings
from opera.core.errors import InputError
from opera.core.files import check_folder, check_output
from opera.core.paths import user_path
from opera.core.terminal import printable
from opera.diagnostics.simulation import World
from opera.experiments.grid.plan import grid_axes, plan_grid
from opera.methods import METHODS
from opera.retrieval.measures import parse_measures, ranking_depth

OWN = sorted({name for method in METHODS.values() for name in method.settings_class.model_fields})
NAMES = st.sampled_from([*TrainSettings.flat_fields, *OWN, "method", "steps", "lr", "", "fp16", "out", "\x1b[31m"])
GOOD = ["ft", "dp", "sp", "hard", "epoch", "1:5", "true", "0.5", "1e-3", "3", "cbs", "nDCG@10", "none", "auto", "paper"]
HOSTILE = st.sampled_from([*VALUES, *GOOD]) | st.integers() | st.floats() | st.text(max_size=20)
PIECES = ["dp", "sp", "ft", ":", "=", "k", "0.5", "levels", "query", "/", "..", " ", ",", "\x1b", "\t", "١", "x" * 300]
MEASURE = ["nDCG", "@", "10", "R", "P", "(", ")", "rel", "=", "2", ",", "AP", "1" * 30, "\x1b", " ", "'", "0", "-", "."]


def check_words(error: InputError) -> None:
    """Check that a message has words on each line, and is short; the command line escapes what it holds."""
    assert all(line.strip() and len(line) < 1500 for line in str(error).split("\n"))


@given(st.dictionaries(NAMES, HOSTILE, max_size=5))
def test_settings(values: Mapping[str, Any]) -> None:
    try:
        flat = make_recipe(values).flat()
    except InputError as error:
        check_words(error)
        return
    assert all(math.isfinite(value) for value in flat.values() if isinstance(value, float))
    json.dumps(flat, allow_nan=False)
    again = {name: value for name, value in flat.items() if value is not None}
    assert make_recipe(again).flat() == flat


@given(st.dictionaries(st.sampled_from([*World.model_fields, "gamma"]), HOSTILE, max_size=4))
def test_settings_of_the_simulation(values: Mapping[str, Any]) -> None:
    try:
        World.parse(values)
    except InputError as error:
        check_words(error)


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=12), max_size=3))
def test_labels_of_a_grid(labels: list[str]) -> None:
    out = Path("/grid")
    try:
        axes, shared = grid_axes({}, labels, [0], [5])
        cells = plan_grid(["data"], axes, out, shared)
    except InputError as error:
        check_words(error)
        return
    folders = [cell.folder for cell in cells]
    assert len(set(folders)) == len(folders)
    for folder in folders:
        assert folder.parts[:3] == ("/", "grid", "data")
        assert len(folder.parts) == 6
        assert ".." not in folder.parts
        assert printable(folder).encode() == str(folder).encode()


@given(st.lists(st.lists(st.sampled_from(MEASURE), max_size=7).map("".join) | st.text(max_size=15), max_size=3))
def test_measures(names: list[str]) -> None:
    try:
        assert 1 <= ranking_depth(parse_measures(names)) < 10**9
    except InputError as error:
        check_words(error)


@given(st.text(st.characters() | st.sampled_from("~/.\0\x1b\udce9"), max_size=40) | st.sampled_from(VALUES).map(str))
def test_paths(text: str) -> None:
    with only_refusals(lambda message: message.startswith("--out")):
        path = user_path(text, "--out")
        check_folder(path, "--out")
        check_output(path, "--out", [".tsv"], overwrite=False, reads=[Path("/dev")])
