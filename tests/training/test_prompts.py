"""Prompts go through every phase of a run, or through search alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from opera.config.recipe import make_recipe
from opera.core.errors import RunFolderError, SettingError
from opera.data import load_data
from opera.retrieval.encoder import open_encoder
from opera.training.trainer import training_arguments
from opera.training_set.build import build_training_set
from opera.training_set.prepare import Prepared, load_and_check
from small_runs import SMALL

PROMPT = "t3w1 t3w2 t3w1 "
"""Moves the similarities of queries far."""
SETTINGS: dict[str, Any] = {**SMALL, "guard": False, "method": "sp", "negatives": "hard", "range": "1:4"}


@pytest.fixture
def prepared(beir: Path, static_model: Path) -> Callable[..., Prepared]:
    data = load_data(beir)
    return lambda **settings: load_and_check(data, str(static_model), make_recipe({**SETTINGS, **settings}))


def test_a_prompt_holds_in_every_phase(prepared: Callable[..., Prepared]) -> None:
    run, without = prepared(query_prompt=PROMPT), prepared(query_prompt="")
    arguments = training_arguments(run.settings, run.model.trained, Path("checkpoints"))
    assert arguments.prompts == {"anchor": PROMPT}
    prompted, plain = build_training_set(run), build_training_set(without)
    assert not np.array_equal(prompted.similarity, plain.similarity)
    assert not np.array_equal(prompted.listed.doc_rows, plain.listed.doc_rows)
    query = run.data.drawn.queries.texts(prompted.query_rows[:1], "text")
    with_prompt = open_encoder(run.model.source).encode([PROMPT + query[0]], "query")
    assert np.array_equal(run.model.encoder.encode(query, "query"), with_prompt), "evaluation is search"


def test_the_prompt_that_data_bring_holds_unless_another_is_given(beir: Path, static_model: Path) -> None:
    data = replace(load_data(beir), query_prompt=PROMPT)
    for given, expected in (({}, PROMPT), ({"query_prompt": ""}, "")):
        run = load_and_check(data, str(static_model), make_recipe({**SETTINGS, **given}))
        assert run.settings.query_prompt == expected
        assert run.model.prompts["query_prompt"] == expected
    with pytest.raises(SettingError, match="query_prompt: must be text in UTF-8, without NUL"):
        load_and_check(replace(data, query_prompt="\0"), str(static_model), make_recipe(SETTINGS))


@pytest.mark.parametrize(
    "use",
    [
        lambda data, **more: opera.score(data, **more)["similarity"],
        lambda data, **more: opera.score(data, negatives=2, **more)["score"],
        lambda data, **more: opera.mine(data, range=(1, 9), **more),
        lambda data, **more: opera.evaluate(data, **more).measures,
        lambda data, **more: [found.score for found in opera.search(data, "common1", **more)],
        lambda data, **more: opera.inspect(data, **more).similarities,
    ],
)
def test_other_commands_use_the_prompt_that_data_bring(use: Callable[..., Any], beir: Path, static_model: Path) -> None:
    data = replace(load_data(beir), query_prompt=PROMPT)
    brought = use(data, model=static_model)
    assert brought == use(load_data(beir), model=static_model, query_prompt=PROMPT)
    assert use(data, model=static_model, query_prompt="") == use(load_data(beir), model=static_model) != brought


def test_a_run_is_used_with_its_own_prompts(beir: Path, static_model: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "query_prompt": PROMPT}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **settings)
    assert run.settings["query_prompt"] == PROMPT
    assert opera.evaluate(beir, model=run.path).measures["nDCG@10"] == run.measures["after"]["nDCG@10"]
    assert (
        opera.evaluate(beir, model=run.path, query_prompt="").measures != opera.evaluate(beir, model=run.path).measures
    )
    scored = opera.score(beir, model=run.path)["similarity"]
    as_told = opera.score(beir, model=run.path, query_prompt=PROMPT)["similarity"]
    assert scored == as_told
    seen, prompted = opera.inspect(beir, model=run.path), opera.inspect(beir, model=run.path, query_prompt=PROMPT)
    without = opera.inspect(beir, model=run.path, query_prompt="")
    assert seen.similarities == prompted.similarities
    assert seen.similarities != without.similarities
    assert (seen.leaks, seen.queries) == (prompted.leaks, prompted.queries), "duplicates are found by search"
    card = (run.model_path / "README.md").read_text()
    assert 'queries with `"t3w1 t3w2 t3w1 "`, as ' in card
    with pytest.raises(RunFolderError, match="query_prompt: the run has 't3w1 t3w2 t3w1 ', this call ''"):
        opera.adapt(beir, model=static_model, out=run.path, resume=True, **{**settings, "query_prompt": ""})
    assert opera.adapt(beir, model=static_model, out=run.path, resume=True, **settings).finished


def test_the_guard_and_a_resumed_run_measure_with_the_prompt(
    beir: Path, static_model: Path, tmp_path: Path, interrupted_at: Callable[[int], Any]
) -> None:
    settings = {**SMALL, "query_prompt": PROMPT, "method": "ft", "seed": 3}
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)
    with interrupted_at(6):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.measures == whole.measures
    assert resumed.record.guard == whole.record.guard
    assert whole.record.guard is not None
    untrained = opera.evaluate(beir, model=static_model, query_prompt=PROMPT)
    assert untrained.measures["nDCG@10"] == whole.measures["before"]["nDCG@10"]
    at_zero = opera.adapt(beir, model=static_model, out=tmp_path / "plain", **{**settings, "query_prompt": ""})
    assert at_zero.record.guard is not None
    assert at_zero.record.guard.curve[0].mean != whole.record.guard.curve[0].mean


def test_an_adapter_keeps_the_prompt_of_its_vectors(beir: Path, static_model: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "query_prompt": PROMPT, "adapter": "query"}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **settings)
    assert opera.evaluate(beir, model=run.path).measures["nDCG@10"] == pytest.approx(run.measures["after"]["nDCG@10"])
