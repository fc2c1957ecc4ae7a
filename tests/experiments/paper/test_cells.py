"""Which runs a table of the paper takes, with which settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opera.config.recipe import make_recipe
from opera.config.recipe_files import read_recipes
from opera.core.errors import SettingError
from opera.data.catalogue import PAPER_SETS
from opera.experiments.grid.plan import Cell, plan_parts
from opera.experiments.paper import TABLES, PaperTable, find_table
from opera.experiments.paper.cells import (
    OF_DATA,
    TableSettings,
    data_settings,
    model_recipe,
    papers_model,
    recipe_note,
    row_method,
    sets_of_table,
    table_parts,
    title_in_table,
    trained_rows,
)
from opera.experiments.paper.readings import reading_of
from opera.experiments.paper.scale import SCALES, find_scale
from opera.experiments.paper.tables import BGE, HUB_IDS, QWEN3
from opera.methods import METHODS


def settings_of(table: str, **changes: Any) -> TableSettings:
    found = find_table(table)
    usual = TableSettings(found, HUB_IDS[found.model], "paper", SCALES["full"], None, (0,), {})
    return replace(usual, **changes)


def cells_of(shared: TableSettings) -> list[Cell]:
    sources = {entry.name: entry.source for entry in sets_of_table(shared.table)}
    return plan_parts(table_parts(shared, sources), Path("grid"))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("preset", ["paper", "release"])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_row_has_its_cells_and_no_cell_is_without_a_row(table: PaperTable, preset: str, scale: str) -> None:
    shared = settings_of(table.name, preset=preset, scale=SCALES[scale])
    shared.check()
    cells = cells_of(shared)
    flat = {cell.folder: make_recipe(cell.values).flat() for cell in cells}
    titles = {entry.name: title_in_table(table, entry) for entry in sets_of_table(table)}
    left = set(flat)
    for row in trained_rows(table):
        spec = row_method(table, row)
        fitting = [
            cell
            for cell in cells
            if titles[cell.data_name] == row.data
            and (not table.by_steps or cell.steps == shared.scale.steps(row.steps or 0))
            and (reading_of(flat[cell.folder]), spec.fits(flat[cell.folder])) == (preset, True)
        ]
        assert len(fitting) == 1, row
        assert flat[fitting[0].folder]["noise"] == table.noise
        left.discard(fitting[0].folder)
    assert not left
    assert len(flat) == len(cells)


def test_data_sets_have_the_steps_and_negatives_of_their_recipes() -> None:
    by_set = {entry.name: data_settings(settings_of("main"), entry) for entry in sets_of_table(find_table("main"))}
    own = {name: {key: values.get(key) for key in OF_DATA[:3]} for name, values in by_set.items()}
    assert own["fiqa"] == {"max_steps": 8000, "negatives": "hard", "range": "10:100"}
    assert own["nfcorpus"] == {"max_steps": 32000, "negatives": "random", "range": None}
    assert (by_set["antique"]["relevant_grade"], by_set["fever"]["range"]) == (3, "10:200")
    noisy = data_settings(settings_of("denoising"), PAPER_SETS["antique"])
    assert (noisy["noise"], noisy["noise_grade"]) == ("grade", 2)


def test_a_model_trains_by_its_own_recipe_and_one_without_at_an_automatic_rate() -> None:
    large, small, own = (
        data_settings(settings_of("main", model=model), PAPER_SETS["fiqa"])
        for model in (HUB_IDS[BGE], "minilm", "models/own")
    )
    assert (large["learning_rate"], "precision" in large) == (1e-6, False)
    assert large["query_prompt"].startswith("Represent this sentence")
    assert (small["learning_rate"], small["max_passage_length"]) == (1e-4, 256)
    assert own["learning_rate"] is None
    assert make_recipe({**own, "method": "ft"}).train.learning_rate is None


def test_the_releases_ranges_begin_one_rank_later() -> None:
    shared = settings_of("main", preset="release")
    assert data_settings(shared, PAPER_SETS["fiqa"])["range"] == "11:100"
    assert "range" not in data_settings(shared, PAPER_SETS["nfcorpus"])


def test_qwen3_trains_by_its_own_recipe_unless_another_model_takes_its_place() -> None:
    paper = data_settings(settings_of("qwen3"), PAPER_SETS["antique"])
    assert {cell.steps for cell in cells_of(settings_of("qwen3"))} == {2000}
    assert (paper["learning_rate"], paper["gradient_accumulation_steps"]) == (1e-5, 4)
    assert (paper["negatives"], paper["range"]) == ("hard", "50:500")
    release = data_settings(settings_of("qwen3", preset="release"), PAPER_SETS["nfcorpus"])
    assert (release["range"], release["max_query_length"]) == ("51:500", 512)
    assert "gradient_accumulation_steps" not in release
    other = data_settings(settings_of("qwen3", model="minilm"), PAPER_SETS["antique"])
    assert "gradient_accumulation_steps" not in other
    assert {cell.steps for cell in cells_of(settings_of("qwen3", model="minilm"))} == {2000}


def test_what_the_user_gives_goes_before_everything_else() -> None:
    given = {"learning_rate": 1e-4, "per_device_train_batch_size": 4, "range": "1:9"}
    values = data_settings(settings_of("main", scale=SCALES["small"], settings=given), PAPER_SETS["fiqa"])
    assert {name: values.get(name) for name in (*given, "global_batch_size")} == {**given, "global_batch_size": None}


def test_other_negatives_go_without_the_recipes_range() -> None:
    values = data_settings(settings_of("main", settings={"negatives": "random"}), PAPER_SETS["fiqa"])
    assert (values["negatives"], "range" in values) == ("random", False)
    make_recipe({**values, "method": "ft"})


def test_small_steps_are_few_and_apart() -> None:
    small = SCALES["small"]
    steps = [small.steps(500 * 2**power) for power in range(7)]
    assert steps == sorted(set(steps))
    assert (steps[0], small.steps(10**9)) == (20, 50)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "papr"}, "--preset papr: must be paper or release; did you mean 'paper'?"),
        ({"methods": ("ft", "rp")}, "--methods rp: table main has no such method"),
        ({"settings": {"max_steps": 5}}, "--set max_steps: the table and its options decide it"),
        ({"settings": {"epochs": 5}}, "--set epochs: the table and its options decide it"),
    ],
)
def test_what_the_table_decides_cannot_be_given(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message.replace("?", r"\?")):
        settings_of("main", **changes).check()
    with pytest.raises(SettingError, match="--scale smal: must be full or small"):
        find_scale("smal")


@pytest.mark.parametrize(
    "name", ["Qwen3-Embedding-0.6B", "qwen3-embedding-0.6b/", "models--Qwen--Qwen3-Embedding-0.6B"]
)
def test_a_copy_of_the_papers_model_trains_as_the_papers(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / ("snapshots/0a1b" if name.startswith("models--") else "")
    folder.mkdir(parents=True)
    for preset in ("paper", "release"):
        copy, hub = (
            data_settings(settings_of("qwen3", preset=preset, model=model), PAPER_SETS["antique"])
            for model in (str(folder), HUB_IDS[QWEN3])
        )
        assert copy == hub
    assert "of models/qwen3-embedding-0.6b, OPERA's recipe" in recipe_note(str(folder))


def test_a_model_without_a_recipe_is_told_so_and_one_of_another_name_by_its_configuration(tmp_path: Path) -> None:
    assert model_recipe(str(tmp_path)) is None
    assert recipe_note("me/own").startswith(
        "OPERA has no recipe of 'me/own': its own prompts and an automatic learning"
    )
    (tmp_path / "config.json").write_text('{"_name_or_path": "BAAI/bge-large-en-v1.5"}')
    assert (model_recipe(str(tmp_path)), papers_model(str(tmp_path))) == ("models/bge-large-en-v1.5", BGE)


@pytest.mark.parametrize("preset", ["paper", "release"])
@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_with_a_preset_trains_as_opera_reproduce_does(preset: str, method: str) -> None:
    """As ``opera train --config fiqa --config models/bge-large-en-v1.5 --preset release``, but for the precision."""
    for entry in sets_of_table(find_table("main")):
        recipe = read_recipes([entry.name, "models/bge-large-en-v1.5"], preset)
        command, cell = (
            make_recipe({**values, "preset": preset, "method": method, "precision": "auto"}).flat()
            for values in (recipe, data_settings(settings_of("main", preset=preset), entry))
        )
        assert command == cell
