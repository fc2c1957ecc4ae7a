"""``opera compare`` before and after its cells run: wrong input, recipes, other data, and the baseline's name."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import opera
from grids import ONE, finish_planned, planned
from opera.cli.options import collect_values
from opera.config.recipe import ADAPT_ARGUMENTS, make_recipe, recipes_by_name
from opera.data.loading import named_source
from opera.experiments.compare import analyse_grid, prepare_grid
from opera.experiments.grid import Grid


@pytest.mark.parametrize("recipe", recipes_by_name())
def test_a_grid_takes_every_shipped_recipe(recipe, beir, static_model, tmp_path):
    given = opera.recipe(recipe)
    values = collect_values([recipe], None)
    for name in ("negatives", "range", "relevant_grade"):  # what the tiny data set lacks
        values.pop(name, None)
    grid = prepare_grid([str(beir)], tmp_path / "grid", str(static_model), values, seeds=[0])
    methods = [given["method"]] if "method" in given else ["ft", "denoise"]
    assert [cell.values["method"] for cell in grid.runs] == methods
    assert {cell.steps for cell in grid.runs} == {given.get("max_steps")}


def first_pair(beir: Path) -> list[str]:
    """The query and the document of the first training pair."""
    return (beir / "qrels" / "train.tsv").read_text().splitlines()[1].split("\t")[:2]


def permute_weights(model: Path) -> None:
    """Replace the weights of a static model in place."""
    file = next(model.rglob("*.safetensors"))
    save_file({name: values[::-1].copy() for name, values in load_file(file).items()}, file)


def test_finished_runs_are_reused_if_model_and_data_have_the_same_contents(tmp_path, static_model):
    out, data, model = tmp_path / "grid", tmp_path / "pairs.csv", tmp_path / "model"
    data.write_text("query,document\n" + "".join(f"t{n}w1 common{n},t{n}w2\n" for n in range(12)))
    shutil.copytree(static_model, model)
    cells = planned(out, data=[str(data)], methods=["ft", "rp:k=0.5"], seeds=[0, 1])
    axes: dict[str, Any] = {"methods": "ft,rp:k=0.5", "seeds": [0, 1], "steps": [10]}
    for cell in cells:
        finish_planned(cell, model)
    folders = {cell.folder for cell in cells}
    for place in (model, static_model):  # the same weights
        assert prepare_grid([str(data)], out, str(place), {}, **axes).done == folders
    permute_weights(model)
    with pytest.raises(opera.RunFolderError, match="was started differently; pass another --out:\nmodel_fingerprint: "):
        prepare_grid([str(data)], out, str(model), {}, **axes)
    data.write_text(data.read_text().replace("t3w2", "t4w4"))
    with pytest.raises(opera.RunFolderError, match="was started differently; pass another --out:\ndata_fingerprint: "):
        prepare_grid([str(data)], out, str(static_model), {}, **axes)


def test_finished_runs_with_other_decisions_or_teacher_scores_are_refused(tmp_path, beir, static_model):
    decisions, teacher, (query, document) = tmp_path / "decisions.csv", tmp_path / "teacher.tsv", first_pair(beir)

    def prepare(name: str, shared: dict[str, Any]) -> Grid:
        out = tmp_path / name
        (cell,) = planned(out, data=[str(beir)], methods=["ft"], seeds=[0], values=shared)
        if not cell.folder.exists():
            finish_planned(cell, static_model)
        return prepare_grid([str(beir)], out, str(static_model), shared, **ONE)

    decisions.write_text(f"query_id,doc_id,decision\n{query},{document},wrong\n")
    assert prepare("decided", {"decisions": [str(decisions)]}).done
    copy = decisions.rename(tmp_path / "renamed.csv")
    assert prepare("decided", {"decisions": [str(copy)]}).done
    copy.write_text(f"query_id,doc_id,decision\n{query},{document},correct\n")
    with pytest.raises(opera.RunFolderError, match="decided_pairs: the run has"):
        prepare("decided", {"decisions": [str(copy)]})
    shared = {"loss": "distill", "teacher_scores": str(teacher), "negatives": "random"}
    teacher.write_text(f"query_id\tdoc_id\tscore\n{query}\t{document}\t0.5\n")
    assert prepare("distilled", shared).done
    teacher.write_text(f"query_id\tdoc_id\tscore\n{query}\t{document}\t0.7\n")
    with pytest.raises(opera.RunFolderError, match="teacher_fingerprint: the run has"):
        prepare("distilled", shared)


def test_runs_take_paths_and_numbers_of_numpy_as_adapt_does(tmp_path, beir, static_model):
    """Their settings go through JSON to their processes."""
    file = tmp_path / "pairs.csv"
    file.write_text("query_id,doc_id,decision,score\n{},{},correct,1\n".format(*first_pair(beir)))
    values: dict[str, Any] = {
        "per_device_train_batch_size": np.int64(8), "learning_rate": np.float32(0.5), "seed": np.int64(3),
        "decisions": [file], "teacher_scores": file, "loss": "distill", "negatives": "random",
    }  # fmt: skip
    axes: dict[str, Any] = {"methods": ["ft"], "steps": [np.int32(10)]}
    (cell,) = prepare_grid([str(beir)], tmp_path / "grid", str(static_model), values, **axes).runs
    call = json.loads(json.dumps(cell.call(str(static_model))))
    assert make_recipe({name: call[name] for name in call.keys() - {*ADAPT_ARGUMENTS}}) == make_recipe(
        {**values, "method": "ft", "max_steps": 10}
    )


def test_reading_options_reach_the_decisions_of_a_run(tmp_path, beir, static_model):
    shared, text = {"decisions": [str(tmp_path / "d.csv")]}, "query_id,doc_id,decision\n{},{},correct\n"
    (tmp_path / "d.csv").write_text(text.format(*first_pair(beir)), encoding="utf-16")
    arguments = [str(beir)], tmp_path / "grid", str(static_model), shared
    with pytest.raises(opera.DataError, match="--encoding"):
        prepare_grid(*arguments, **ONE)
    (cell,) = prepare_grid(*arguments, **ONE, encoding="utf-16").runs
    assert cell.call("model")["encoding"] == "utf-16"


def test_a_recipe_gives_defaults_that_options_override(compare, beir, static_model, tmp_path):
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "grid"
    recipe.write_text("method: dp\nsoft: false\nmax_steps: 30\nseed: 4\nlr: 0.1\n")
    options = ["--model", static_model, "--out", out, "--config", recipe, "--plan", "--json"]
    for cell in planned(out, data=[str(beir)], seeds=[4, 5], steps=[30], values={"soft": False, "lr": 0.1}):
        finish_planned(cell, static_model)

    def cells(*more: str) -> list[tuple[str, int, int]]:
        done = compare(beir, *options, *more)
        plan = json.loads(done.stdout)
        assert (plan["seconds"] > 0) == any(not run["finished"] for run in plan["runs"])
        return [(run["method"], run["steps"], run["seed"]) for run in plan["runs"]]

    assert cells() == [("dp", 30, 4)]
    assert cells("--methods", "FT,DP", "--seeds", "4,5") == [
        (method, 30, seed) for seed in (4, 5) for method in ("ft", "dp")
    ]
    values = {"method": "dp", "soft": False, "max_steps": 30, "seed": 4, "lr": 0.1}
    comparison = opera.compare(beir, model=static_model, out=out, methods="FT, DP", baseline="DP", **values)
    (table,) = comparison.tables
    assert (comparison.baseline, table.steps, [row.method for row in table.rows]) == (
        "dp:soft=false",
        30,
        ["ft", "dp:soft=false"],
    )


def test_tables_are_read_as_adapt_reads_them(static_model, tmp_path):
    path, out = tmp_path / "pairs.csv", tmp_path / "grid"
    path.write_text("Ticket;body\n" + "".join(f"q{at};document {at}\n" for at in range(30)) + "q;é;é\n", "cp1252")
    how: dict[str, Any] = {"columns": {"query": "ticket", "document": "body"}, "encoding": "cp1252"}
    call: dict[str, Any] = {"model": static_model, "out": out, "methods": "ft", "seeds": [0], "steps": [10], **how}
    with pytest.raises(opera.DataError, match=r"pairs\.csv:32: must have 2 columns"):
        opera.compare(path, **call)
    source = named_source(path, **how, skip_bad_rows=True)
    for cell in planned(out, data=[source], methods=["ft"], seeds=[0]):
        finish_planned(cell, static_model)
    assert len(opera.compare(path, skip_bad_rows=True, **call).tables) == 1
    with pytest.raises(opera.SettingError, match=r"^the runs of a grid are processes .*frame\.to_parquet"):
        opera.compare(pd.DataFrame({"query": ["a"], "document": ["b"]}), **call)


def test_a_baseline_goes_by_the_name_that_the_user_gave_it(beir, static_model, tmp_path):
    cells = planned(tmp_path, methods=["sp:k=0.25", "dp", "ft"], seeds=[0])
    for cell in cells:
        finish_planned(cell)

    def analysed(baseline: str | None) -> str | None:
        return analyse_grid(Grid(tmp_path, "model", cells, baseline=baseline)).baseline

    assert analysed("sp:k=0.25") == "sp"
    assert analysed(None) == "ft"
    (cells[0].folder / "run.json").unlink()
    assert analysed("sp:k=0.25") == "ft", "its cell failed"
    grid = [str(beir)], tmp_path / "other", str(static_model), {}
    assert prepare_grid(*grid, "sp:k=0.25,dp", baseline="DP").baseline == "dp"
    with pytest.raises(opera.SettingError, match=r"--baseline sp: must be one of the methods: sp:k=0\.25, dp"):
        prepare_grid(*grid, "sp:k=0.25,dp", baseline="sp")
