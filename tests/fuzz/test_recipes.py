"""Recipes and ``--set``: spoilt YAML is read as plain values or refused."""

from __future__ import annotations

import json
import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fuzzing import BYTES, only_refusals, spoilt, workplace
from opera.config.recipe import read_recipes
from opera.config.yaml import parse_assignments, parse_scalar, read_recipe
from opera.core.errors import SettingError
from opera.retrieval.prompts import as_setting

RECIPE = b"""# a recipe
method: dp
learning_rate: 2e-5
max_steps: 100 # short
negatives: 'hard'
mining_range: 10:50
measures: [nDCG@10, "MRR@10"]
nested:
  - {a: 1, b: null}
  - text: |
      of two
      lines
"""
INDICATORS = [b"a", b": ", b"\n", b"1", b"- ", b"  ", b"'", b"%YAML 1.1\n---\n"]
PIECES = st.lists(st.sampled_from([*BYTES, *INDICATORS]), max_size=12)


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str | int | float | None) and is_plain(item) for key, item in value.items())
    return (
        all(map(is_plain, value)) if isinstance(value, list) else value is None or isinstance(value, str | int | float)
    )


@given(spoilt(RECIPE) | PIECES.map(b"".join))
def test_recipes(content: bytes) -> None:
    with workplace() as folder, only_refusals(lambda message: message.startswith("--config ")):
        (folder / "recipe.yaml").write_bytes(content)
        values = read_recipe(folder / "recipe.yaml")
        assert is_plain(values)
        json.dumps(values)


@given(spoilt(b"method: dp\nlearning_rate: 2e-5\nmax_steps: 100 # short\nnegatives: 'hard'\nrange: 10:50\nk: 0.5\n"))
def test_a_spoilt_recipe_after_a_good_one_is_merged_or_named(content: bytes) -> None:
    refused: tuple[str, ...] = ()
    with workplace() as folder:
        (folder / "recipe.yaml").write_bytes(content)
        try:
            assert "temperature" in read_recipes(["fiqa", folder / "recipe.yaml"])
        except SettingError as error:
            refused = error.lines
        assert all(line.startswith(f"--config {folder}") and line.isprintable() for line in refused)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30))
def test_a_prompt_that_a_note_advises_is_read_as_it_was(prompt: str) -> None:
    _, assignment = shlex.split(as_setting("query", prompt))
    assert assignment.isprintable()
    assert parse_assignments([assignment]) == {"query_prompt": prompt}
    assert all(type(value) in (str, type(None)) for value in parse_assignments([f"query_prompt={prompt}"]).values())


@given(spoilt(b"[nDCG@10, {a: 1}]") | PIECES.map(b"".join))
def test_values_of_the_command_line(content: bytes) -> None:
    text = content.decode("utf-8", "surrogateescape")
    value = parse_scalar(text)
    assert is_plain(value)
    assert repr(value)
