"""Which runs a table of the paper takes, on which data, with which settings, and how they are cut into shards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opera.config.recipe import make_recipe, read_recipes
from opera.core.errors import SettingError
from opera.data.catalogue import PAPER_SETS
from opera.experiments.paper.plan import (
    OF_DATA,
    Reproduction,
    cells_of_shard,
    model_recipe,
    papers_model,
    recipe_note,
    row_method,
    set_of_row,
    sets_of_table,
    trained_rows,
)
from opera.experiments.paper.tables import BGE, HUB_IDS, QWEN3, TABLES, PaperRow, PaperTable, data_key, find_table


def settings_of(
    table: str, model: str | None = None, seeds: tuple[int, ...] = (0,), scale: str = "full", **changes: Any
) -> Reproduction:
    usual = Reproduction(find_table(table), Path("grid"), scale, model, "paper", None, seeds, {}, None)
    return replace(usual, **changes)


@pytest.mark.parametrize(("preset", "scale"), [("paper", "full"), ("release", "small")])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_row_has_its_cells_and_no_cell_is_without_a_row(table: PaperTable, preset: str, scale: str) -> None:
    every = [entry.name for entry in sets_of_table(table)]
    plan = settings_of(table.name, preset=preset, scale=scale, model="models/own", data=every)
    by_place = {(cell.data_name, cell.label, cell.steps): cell for cell in plan.cells}
    assert len(by_place) == len(plan.cells)
    assert [row for row, *_ in plan.trained] == trained_rows(table)
    for row, name, label, steps in plan.trained:
        recipe, (method, settings) = make_recipe(by_place[name, label, steps].values).flat(), row_method(table, row)
        assert set_of_row(row).name == name
        assert not row.steps or steps == plan.steps(row.steps)
        assert {**recipe, **settings, "method": method, "preset": preset} == recipe
    assert {tuple(place) for _, *place in plan.trained} == set(by_place)


@pytest.mark.parametrize(
    ("label", "method", "settings"),
    [
        ("SP", "sp", {"k": 0.25}), ("SP50", "sp", {"k": 0.5}), ("RP25", "rp", {"k": 0.25}),
        ("SP.05", "sp", {"k": 0.05}),
        ("SP (CBS)", "sp+cbs", {"k": 0.25}), ("SP.75+DP", "sp+dp", {"k": 0.75}), ("DP", "dp", {}),
        ("DP w/ Query Sel.", "dp", {"levels": "query"}),
    ],
)  # fmt: skip
def test_methods_in_the_papers_words(label: str, method: str, settings: dict[str, Any]) -> None:
    row = PaperRow("NFCorpus", "", label, None, {})
    assert row_method(find_table("main"), row) == (method, settings)
    half = replace(row, data="FiQA", method="SP")
    assert [row_method(find_table(name), half)[1] for name in ("main", "cbs")] == [{"k": 0.5}, {"k": 0.25}]
    with pytest.raises(KeyError):
        row_method(find_table("main"), replace(row, method="SPDP"))


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("../shared/data/nfcorpus", "nfcorpus"), ("NFCorpus", "nfcorpus"), ("beir/TripClick-Head/", "tripclickhead"),
        ("TripClick (h)", "tripclickhead"), ("tripclick_torso", "tripclicktorso"), ("x/fiqa.jsonl", "fiqa"),
        ("paper:tripclick-head", "tripclickhead"), ("irds:antique/train", "antique"), ("hf:mteb/nfcorpus", "nfcorpus"),
    ],
)  # fmt: skip
def test_data_sets_are_known_by_their_last_part(source: str, key: str) -> None:
    assert data_key(source) == key


def test_data_sets_have_the_steps_and_negatives_of_their_recipes() -> None:
    by_set = {entry.name: settings_of("main").data_settings(entry) for entry in sets_of_table(find_table("main"))}
    own = {name: {key: values.get(key) for key in OF_DATA[:3]} for name, values in by_set.items()}
    assert own["fiqa"] == {"max_steps": 8000, "negatives": "hard", "range": "10:100"}
    assert own["nfcorpus"] == {"max_steps": 32000, "negatives": "random", "range": None}
    assert (by_set["antique"]["relevant_grade"], by_set["fever"]["range"]) == (3, "10:200")
    release = settings_of("main", preset="release")
    assert release.data_settings(PAPER_SETS["fiqa"])["range"] == "11:100"
    assert "range" not in release.data_settings(PAPER_SETS["nfcorpus"])
    noisy = settings_of("denoising")
    assert noisy.data_settings(PAPER_SETS["antique"])["relevant_grade"] == 3
    assert {cell.data for cell in noisy.cells} == {str(Path("grid", "antique-noisy"))}


def test_a_model_trains_by_its_own_recipe_and_one_without_at_an_automatic_rate() -> None:
    large, small, own = (
        settings_of("main", model=model).data_settings(PAPER_SETS["fiqa"])
        for model in (HUB_IDS[BGE], "minilm", "models/own")
    )
    assert (large["learning_rate"], "precision" in large) == (1e-6, False)
    assert large["query_prompt"].startswith("Represent this sentence")
    assert (small["learning_rate"], small["max_passage_length"]) == (1e-4, 256)
    assert own["learning_rate"] is None
    assert make_recipe({**own, "method": "ft"}).train.learning_rate is None


def test_qwen3_trains_by_its_own_recipe_unless_another_model_takes_its_place() -> None:
    paper = settings_of("qwen3").data_settings(PAPER_SETS["antique"])
    assert {cell.steps for cell in settings_of("qwen3").cells} == {2000}
    assert (paper["learning_rate"], paper["trainer"]["gradient_accumulation_steps"]) == (1e-5, 4)
    assert (paper["negatives"], paper["range"]) == ("hard", "50:500")
    release = settings_of("qwen3", preset="release").data_settings(PAPER_SETS["nfcorpus"])
    assert (release["range"], release["max_query_length"]) == ("51:500", 512)
    assert release["trainer"] == {"gradient_checkpointing": True}
    other = settings_of("qwen3", model="minilm").data_settings(PAPER_SETS["antique"])
    assert "trainer" not in other
    assert {cell.steps for cell in settings_of("qwen3", model="minilm").cells} == {2000}


def test_what_the_user_gives_goes_before_everything_else() -> None:
    given = {"learning_rate": 1e-4, "per_device_train_batch_size": 4, "range": "1:9"}
    values = settings_of("main", scale="small", settings=given).data_settings(PAPER_SETS["fiqa"])
    assert {name: values.get(name) for name in (*given, "global_batch_size")} == {**given, "global_batch_size": None}
    random = settings_of("main", settings={"negatives": "random"}).data_settings(PAPER_SETS["fiqa"])
    assert (random["negatives"], "range" in random) == ("random", False), "the range goes with hard negatives"


def test_small_steps_are_few_and_apart() -> None:
    small = settings_of("main", scale="small")
    steps = [small.steps(500 * 2**power) for power in range(7)]
    assert steps == sorted(set(steps))
    assert (steps[0], small.steps(10**9)) == (20, 50)


@pytest.mark.parametrize("name", ["qwen3-embedding-0.6b/", "models--Qwen--Qwen3-Embedding-0.6B"])
def test_a_copy_of_the_papers_model_trains_as_the_papers(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / ("snapshots/0a1b" if name.startswith("models--") else "")
    folder.mkdir(parents=True)
    for preset in ("paper", "release"):
        copy, hub = (
            settings_of("qwen3", preset=preset, model=model).data_settings(PAPER_SETS["antique"])
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
def test_a_recipe_with_a_preset_trains_as_opera_reproduce_does(preset: str) -> None:
    """As ``opera train --config fiqa --config models/bge-large-en-v1.5 --preset release``, but for the precision."""
    plan = settings_of("main", preset=preset)
    for entry in sets_of_table(find_table("main")):
        both = (read_recipes([entry.name, "models/bge-large-en-v1.5"], preset), plan.data_settings(entry))
        for method in ("dp", "sp+cbs"):
            recipe, cell = (
                make_recipe({**values, "preset": preset, "method": method, "precision": "auto"}).flat()
                for values in both
            )
            assert recipe == cell


@pytest.mark.parametrize("count", [3, 8, 100])
def test_shards_share_the_cells_and_few_of_them_have_one_data_set(count: int) -> None:
    cells = settings_of("main", seeds=(0, 1)).cells
    shards = [cells_of_shard(cells, number, count) for number in range(1, count + 1)]
    assert sorted(cell.folder for shard in shards for cell in shard) == sorted(cell.folder for cell in cells)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    if count == 8:
        assert [len({cell.data_name for cell in shard}) for shard in shards] == [1] * 8


def test_data_sets_by_name_and_by_place() -> None:
    planned = settings_of("main", data=["fiqa, antique", "nfcorpus=a,b/c=d"])
    assert planned.sources == {"fiqa": "paper:fiqa", "antique": "paper:antique", "nfcorpus": "a,b/c=d"}
    assert planned.left_out == {}
    assert len(settings_of("main").sources) == 8


def test_a_small_scale_leaves_large_data_sets_out_and_says_so() -> None:
    planned = settings_of("main", scale="small")
    assert list(planned.sources) == ["nfcorpus", "fiqa"]
    assert planned.left_out["fever"] == (
        "5,416,568 documents are many for --scale small; --data fever takes it all the same"
    )
    with pytest.raises(SettingError, match=r"fever: 5,416,568 documents are many .*; --data fever takes"):
        settings_of("components", scale="small").sources  # noqa: B018
    assert list(settings_of("main", scale="small", data=["fever"]).sources) == ["fever"]
