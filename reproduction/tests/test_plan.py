"""Which runs a table of the paper needs, on which data, with which settings."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import opera
from documents import parse
from opera.config.recipe import make_recipe
from opera.config.yaml import parse_assignments
from opera.experiments.plan import parse_method
from opera_paper.plan import DATA_SETTINGS, Reproduction, row_method, set_of_row, trained_rows
from opera_paper.tables import BGE, HUB_IDS, QWEN3, TABLES, find_table


def planned(table: str = "main", **changes: Any) -> Reproduction:
    return replace(Reproduction(find_table(table), Path("grid"), user_seeds=(0,)), **changes)


@pytest.mark.parametrize(("preset", "scale"), [("paper", "full"), ("release", "small")])
@pytest.mark.parametrize("table", [table for table in TABLES if not table.by_steps], ids=lambda table: table.name)
def test_every_row_has_its_run_and_no_run_is_without_a_row(table, preset, scale):
    every = [set_of_row(row).name for row in trained_rows(table)]
    plan = planned(table.name, preset=preset, scale=scale, user_model="models/own", user_data=every)
    calls = {(call.name, label, call.steps): call for call in plan.calls for label in call.methods}
    assert [row for row, *_ in plan.rows] == trained_rows(table)
    assert {tuple(place) for _, *place in plan.rows} == set(calls)
    for row, name, label, steps in plan.rows:
        assert set_of_row(row).name == name
        assert not row.steps or steps == plan.steps(row.steps)
        method, special = parse_method(label)
        settings = opera.recipe(calls[name, label, steps].settings, special)
        known = {*make_recipe({"method": method}).flat()}
        flat = make_recipe({"method": method, **{k: v for k, v in settings.items() if k in known}}).flat()
        papers_method, papers_settings = row_method(table, row)
        assert {**flat, **papers_settings, "method": papers_method} == flat


def test_data_sets_have_the_steps_and_negatives_of_their_recipes():
    names = ("fiqa", "nfcorpus", "antique", "fever")
    fiqa, nfcorpus, antique, fever = (planned().settings(name, ["dp"]) for name in names)
    assert [fiqa[name] for name in DATA_SETTINGS[:3]] == [8000, "hard", "10:100"]
    assert (nfcorpus["max_steps"], nfcorpus["negatives"], "range" in nfcorpus) == (32000, "random", False)
    assert (antique["relevant_grade"], fever["range"]) == (3, "10:200")
    release = planned(preset="release")
    assert release.settings("fiqa", ["dp"])["range"] == "11:100"
    assert (release.settings("fiqa", ["dp"])["global_batch_size"], fiqa["global_batch_size"]) == (128, 64)


def test_a_model_trains_by_its_own_recipe_and_one_without_at_an_automatic_rate():
    large, small, own = (
        planned(user_model=model).settings("fiqa", ["dp"]) for model in (HUB_IDS[BGE], "minilm", "models/own")
    )
    assert (large["learning_rate"], "precision" in large) == (1e-6, False)
    assert large["query_prompt"].startswith("Represent this sentence")
    assert (small["learning_rate"], small["max_passage_length"]) == (1e-4, 256)
    assert own["learning_rate"] is None  # automatic


def test_qwen3_trains_by_its_own_recipe_unless_another_model_takes_its_place():
    paper = planned("qwen3").settings("antique", ["dp"])
    assert {call.steps for call in planned("qwen3").calls} == {2000}
    assert (paper["learning_rate"], paper["trainer"]["gradient_accumulation_steps"]) == (1e-5, 4)
    assert (paper["negatives"], paper["range"]) == ("hard", "50:500")
    release = planned("qwen3", preset="release").settings("nfcorpus", ["dp"])
    assert (release["range"], release["max_query_length"]) == ("51:500", 512)
    assert release["trainer"] == {"weight_decay": 0.01, "gradient_checkpointing": True}
    assert planned("qwen3", user_model=f"copies/{QWEN3}").settings("antique", ["dp"]) == paper
    assert "trainer" not in planned("qwen3", user_model="minilm").settings("antique", ["dp"])


def test_data_sets_by_name_and_by_place():
    plan = planned(user_data=["fiqa", "nfcorpus=a/b=c"])
    assert plan.sources == {"fiqa": "paper:fiqa", "nfcorpus": "a/b=c"}
    assert len(planned().sources) == 8
    small = planned(scale="small")
    assert list(small.sources) == ["nfcorpus", "fiqa"]
    assert "fever" in small.too_large
    assert list(planned(scale="small", user_data=["fever"]).sources) == ["fever"]


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": "tiny"}, {"preset": "papers"}, {"only_methods": ("denoise",)}, {"user_data": ["arguana"]},
        {"user_settings": {"max_steps": "5"}},
    ],
)  # fmt: skip
def test_wrong_options_are_refused(changes):
    with pytest.raises(opera.SettingError):
        planned(**changes).sources  # noqa: B018


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_the_printed_commands_ask_for_the_same_settings(preset):
    plan = planned("hierarchy", preset=preset, user_data=["fiqa=mine"])
    (command,), (call,) = plan.commands(), plan.calls
    given = parse(shlex.split(command)[1:])
    asked = opera.recipe(*given["config"], parse_assignments(given["set_"]), methods=["dp"])
    assert (given["methods"], int(given["steps"])) == (",".join(call.methods), call.steps)
    settings = (
        make_recipe({**values, "method": "dp", "max_steps": 8000}).flat()
        for values in (asked, opera.recipe(call.settings))
    )
    assert next(settings) == next(settings)


def test_runs_on_noisy_labels_read_a_folder_that_the_first_command_writes():
    plan = planned("denoising", user_data=["antique=mine"])
    first, *others = plan.commands()
    assert first == "opera-paper noise mine --kind grade --grade 2 --out grid/antique-noisy"
    assert {call.source for call in plan.calls} == {"grid/antique-noisy"}
    assert all(command.startswith("opera compare grid/antique-noisy ") for command in others)
