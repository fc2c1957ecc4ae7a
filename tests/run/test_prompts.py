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
from opera.data import Mixture, load_all, load_data
from opera.retrieval.encoder import open_encoder
from opera.run_folder.folder import Run
from opera.training.build import build_training_set
from opera.training.prepare import load_and_check
from opera.training.trainer import training_arguments
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
        load_and_check(load_all([beir]), str(static_model), make_recipe({**SETTINGS, "query_prompt": prompt}))
        for prompt in (PROMPT, "")
    )
    arguments = training_arguments(run.settings, run.model.trained, Path("checkpoints"))
    assert arguments.prompts == {"anchor": PROMPT}
    prompted, plain = build_training_set(run), build_training_set(without)
    assert not np.array_equal(prompted.similarity, plain.similarity)
    assert not np.array_equal(prompted.negatives.lists.doc_rows, plain.negatives.lists.doc_rows)
    query = run.data.with_splits.joined.queries.texts(prompted.train.query_rows[:1], "text")
    with_prompt = open_encoder(run.model.source).encode([PROMPT + query[0]], "query")
    assert np.array_equal(run.model.encoder.encode(query, "query"), with_prompt), "evaluation is search"


def test_the_prompt_that_data_bring_holds_unless_another_is_given(beir: Path, static_model: Path) -> None:
    data = replace(load_data(beir), query_prompt=PROMPT)
    for settings, expected in (({}, PROMPT), ({"query_prompt": ""}, "")):
        run = load_and_check(Mixture.of(data), str(static_model), make_recipe({**SETTINGS, **settings}))
        assert run.settings.query_prompt == run.model.prompts["query_prompt"] == expected


@pytest.mark.parametrize(
    "use",
    [
        lambda data, **more: opera.score(data, negatives=2, **more)["score"],
        lambda data, **more: opera.evaluate(data, **more).measures,
        lambda data, **more: [document.score for document in opera.search(data, "common1", **more)],
    ],
)
def test_other_commands_use_the_prompt_of_data_and_of_runs(
    use: Callable[..., Any], beir: Path, static_model: Path, prompted: Run
) -> None:
    data = replace(load_data(beir), query_prompt=PROMPT)
    with_prompt = use(load_data(beir), model=static_model, query_prompt=PROMPT)
    assert use(data, model=static_model) == with_prompt != use(data, model=static_model, query_prompt="")
    with_prompt = use(beir, model=prompted.path, query_prompt=PROMPT)
    assert use(beir, model=prompted.path) == with_prompt != use(beir, model=prompted.path, query_prompt="")
