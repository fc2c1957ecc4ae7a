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
from opera.core.errors import RunFolderError
from opera.data import load_data
from opera.engine.trainer import training_arguments
from opera.retrieval.encoder import open_encoder
from opera.runs.folder import Run
from opera.training_set.build import build_training_set
from opera.training_set.prepare import load_and_check
from small_runs import SMALL

PROMPT = "t3w1 t3w2 t3w1 "
"""Moves the similarities of queries far."""
SETTINGS: dict[str, Any] = {**SMALL, "method": "sp", "negatives": "hard", "range": "1:4"}


@pytest.fixture(scope="module")
def prompted(beir: Path, static_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("prompted") / "run"
    return opera.adapt(beir, model=static_model, out=out, query_prompt=PROMPT, **SETTINGS)


def test_a_prompt_holds_in_every_phase(beir: Path, static_model: Path) -> None:
    run, without = (
        load_and_check(load_data(beir), str(static_model), make_recipe({**SETTINGS, "query_prompt": prompt}))
        for prompt in (PROMPT, "")
    )
    arguments = training_arguments(run.settings, run.model.trained, Path("checkpoints"))
    assert arguments.prompts == {"anchor": PROMPT}
    prompted, plain = build_training_set(run), build_training_set(without)
    assert not np.array_equal(prompted.scores.similarity, plain.scores.similarity)
    assert not np.array_equal(prompted.negatives.lists.doc_rows, plain.negatives.lists.doc_rows)
    query = run.data.drawn.queries.texts(prompted.query_rows[:1], "text")
    with_prompt = open_encoder(run.model.source).encode([PROMPT + query[0]], "query")
    assert np.array_equal(run.model.encoder.encode(query, "query"), with_prompt), "evaluation is search"


def test_the_prompt_that_data_bring_holds_unless_another_is_given(beir: Path, static_model: Path) -> None:
    data = replace(load_data(beir), query_prompt=PROMPT)
    for given, expected in (({}, PROMPT), ({"query_prompt": ""}, "")):
        run = load_and_check(data, str(static_model), make_recipe({**SETTINGS, **given}))
        assert run.settings.query_prompt == run.model.prompts["query_prompt"] == expected


@pytest.mark.parametrize(
    "use",
    [
        lambda data, **more: opera.score(data, negatives=2, **more)["score"],
        lambda data, **more: opera.mine(data, range=(1, 9), **more),
        lambda data, **more: opera.evaluate(data, **more).measures,
        lambda data, **more: [found.score for found in opera.search(data, "common1", **more)],
        lambda data, **more: opera.inspect(data, **more).similarities,
    ],
)
def test_other_commands_use_the_prompt_of_data_and_of_runs(
    use: Callable[..., Any], beir: Path, static_model: Path, prompted: Run
) -> None:
    data = replace(load_data(beir), query_prompt=PROMPT)
    brought = use(data, model=static_model)
    assert brought == use(load_data(beir), model=static_model, query_prompt=PROMPT)
    assert use(data, model=static_model, query_prompt="") == use(load_data(beir), model=static_model) != brought
    own = use(beir, model=prompted.path)
    assert own == use(beir, model=prompted.path, query_prompt=PROMPT) != use(beir, model=prompted.path, query_prompt="")


def test_a_run_measures_chooses_and_resumes_with_its_prompt(beir: Path, static_model: Path, prompted: Run) -> None:
    settings = {**SETTINGS, "query_prompt": PROMPT}
    assert prompted.settings["query_prompt"] == PROMPT
    untrained = opera.evaluate(beir, model=static_model, query_prompt=PROMPT).measures["nDCG@10"]
    assert untrained == prompted.measures["before"]["nDCG@10"]
    assert opera.evaluate(beir, model=prompted.path).measures["nDCG@10"] == prompted.measures["after"]["nDCG@10"]
    assert 'queries with `"t3w1 t3w2 t3w1 "` and' in (prompted.model_path / "README.md").read_text()
    with pytest.raises(RunFolderError, match="query_prompt: the run has 't3w1 t3w2 t3w1 ', this call ''"):
        opera.adapt(beir, model=static_model, out=prompted.path, resume=True, **{**settings, "query_prompt": ""})
    assert opera.adapt(beir, model=static_model, out=prompted.path, resume=True, **settings).finished


def test_an_adapter_keeps_the_prompt_of_its_vectors(beir: Path, static_model: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "query_prompt": PROMPT, "adapter": "query"}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **settings)
    assert opera.evaluate(beir, model=run.path).measures["nDCG@10"] == pytest.approx(run.measures["after"]["nDCG@10"])
