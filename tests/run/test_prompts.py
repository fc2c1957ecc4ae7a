"""Prompts go through every phase of a run, or through search alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.data import load_data
from opera.retrieval.encoder import open_encoder
from opera.training.build import build_training_set
from opera.training.trainer import training_arguments
from small_runs import SMALL, prepare

PROMPT = "t3w1 t3w2 t3w1 "
"""Moves the similarities of queries far."""
SETTINGS = {**SMALL, "method": "sp", "negatives": "hard", "range": "1:4"}


@pytest.fixture(scope="module")
def prompted(beir, static_model, tmp_path_factory) -> opera.Run:
    out = tmp_path_factory.mktemp("prompted") / "run"
    return opera.adapt(beir, model=static_model, out=out, query_prompt=PROMPT, **SETTINGS)


def test_a_prompt_holds_in_every_phase(beir, static_model):
    run, without = (prepare(beir, static_model, query_prompt=prompt, **SETTINGS) for prompt in (PROMPT, ""))
    arguments = training_arguments(run.settings, run.model.trained, Path("checkpoints"))
    assert arguments.prompts == {"anchor": PROMPT}
    prompted, plain = build_training_set(run), build_training_set(without)
    assert not np.array_equal(prompted.similarity, plain.similarity)
    assert not np.array_equal(prompted.negatives.lists.doc_rows, plain.negatives.lists.doc_rows)
    query = run.data.with_splits.joined.queries.texts(prompted.train.query_rows[:1], "text")
    with_prompt = open_encoder(run.model.source).encode([PROMPT + query[0]], "query")
    assert np.array_equal(run.model.encoder.encode(query, "query"), with_prompt), "evaluation is search"


def test_the_prompt_that_data_bring_holds_unless_another_is_given(beir, static_model):
    data = replace(load_data(beir), query_prompt=PROMPT)
    for settings, expected in (({}, PROMPT), ({"query_prompt": ""}, "")):
        run = prepare(data, static_model, **SETTINGS, **settings)
        assert run.settings.query_prompt == run.model.prompts["query_prompt"] == expected


@pytest.mark.parametrize(
    "use",
    [
        lambda data, **more: opera.score(data, negatives=2, **more)["score"],
        lambda data, **more: opera.evaluate(data, **more).measures,
        lambda data, **more: [document.score for document in opera.search(data, "common1", **more)],
    ],
)
def test_other_commands_use_the_prompt_of_data_and_of_runs(use, beir, static_model, prompted):
    data = replace(load_data(beir), query_prompt=PROMPT)
    with_prompt = use(load_data(beir), model=static_model, query_prompt=PROMPT)
    assert use(data, model=static_model) == with_prompt != use(data, model=static_model, query_prompt="")
    with_prompt = use(beir, model=prompted.path, query_prompt=PROMPT)
    assert use(beir, model=prompted.path) == with_prompt != use(beir, model=prompted.path, query_prompt="")
