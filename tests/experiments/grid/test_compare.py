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
from opera.core.cache import sole_use
from opera.core.errors import RunFolderError, SettingError
from opera.data.loading import named_source
from opera.experiments.compare import analyse_grid, prepare_grid
from opera.experiments.grid import Grid, train_grid


@pytest.mark.parametrize("recipe", recipes_by_name())
def test_a_grid_takes_every_shipped_recipe(recipe, beir, static_model, tmp_path):
    given = opera.recipe(recipe)
    values = collect_values([recipe], None)
    for name in ("negatives", "range", "relevant_grade"):  # what the tiny data set lacks
        values.pop(name, None)
    grid = prepare_grid([str(beir)], tmp_path / "grid", [str(static_model)], values, seeds=[0])
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
    axes = {"methods": "ft,rp:k=0.5", "seeds": [0, 1], "steps": [10]}
    for cell in cells:
        finish_planned(cell, model)
    folders = {cell.folder for cell in cells}
    for place in (model, static_model):  # the same weights
        assert prepare_grid([str(data)], out, [str(place)], {}, **axes).done == folders
    permute_weights(model)
    with pytest.raises(opera.RunFolderError, match="was started differently; pass another --out:\nmodel_fingerprint: "):
        prepare_grid([str(data)], out, [str(model)], {}, **axes)
    data.write_text(data.read_text().replace("t3w2", "t4w4"))
    with pytest.raises(opera.RunFolderError, match="was started differently; pass another --out:\ndata_fingerprint: "):
        prepare_grid([str(data)], out, [str(static_model)], {}, **axes)


def test_finished_runs_with_other_decisions_or_teacher_scores_are_refused(tmp_path, beir, static_model):
    decisions, teacher, (query, document) = tmp_path / "decisions.csv", tmp_path / "teacher.tsv", first_pair(beir)

    def prepare(name: str, shared: dict[str, Any]) -> Grid:
        out = tmp_path / name
        (cell,) = planned(out, data=[str(beir)], methods=["ft"], seeds=[0], values=shared)
        if not cell.folder.exists():
            finish_planned(cell, static_model)
        return prepare_grid([str(beir)], out, [str(static_model)], shared, **ONE)

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
    values = {
        "per_device_train_batch_size": np.int64(8), "learning_rate": np.float32(0.5), "seed": np.int64(3),
        "decisions": [file], "teacher_scores": file, "loss": "distill", "negatives": "random",
    }  # fmt: skip
    axes = {"methods": ["ft"], "steps": [np.int32(10)]}
    (cell,) = prepare_grid([str(beir)], tmp_path / "grid", [str(static_model)], values, **axes).runs
    call = json.loads(json.dumps(cell.call()))
    assert make_recipe({name: call[name] for name in call.keys() - {*ADAPT_ARGUMENTS}}) == make_recipe(
        {**values, "method": "ft", "max_steps": 10}
    )


def test_reading_options_reach_the_decisions_of_a_run(tmp_path, beir, static_model):
    shared, text = {"decisions": [str(tmp_path / "d.csv")]}, "query_id,doc_id,decision\n{},{},correct\n"
    (tmp_path / "d.csv").write_text(text.format(*first_pair(beir)), encoding="utf-16")
    arguments = [str(beir)], tmp_path / "grid", [str(static_model)], shared
    with pytest.raises(opera.DataError, match="--encoding"):
        prepare_grid(*arguments, **ONE)
    (cell,) = prepare_grid(*arguments, **ONE, encoding="utf-16").runs
    assert cell.call()["encoding"] == "utf-16"


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
    how = {"columns": {"query": "ticket", "document": "body"}, "encoding": "cp1252"}
    call = {"model": static_model, "out": out, "methods": "ft", "seeds": [0], "steps": [10], **how}
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
        return analyse_grid(Grid(tmp_path, cells, baseline=baseline)).baseline

    assert analysed("sp:k=0.25") == "sp"
    assert analysed(None) == "ft"
    (cells[0].folder / "run.json").unlink()
    assert analysed("sp:k=0.25") == "ft", "its cell failed"
    grid = [str(beir)], tmp_path / "other", [str(static_model)], {}
    assert prepare_grid(*grid, "sp:k=0.25,dp", baseline="DP").baseline == "dp"
    with pytest.raises(opera.SettingError, match=r"--baseline sp: must be one of the methods: sp:k=0\.25, dp"):
        prepare_grid(*grid, "sp:k=0.25,dp", baseline="sp")


def test_a_run_with_another_model_or_other_settings_is_refused(tmp_path, beir, static_model, bert_model):
    out = tmp_path / "grid"
    (cell,) = planned(
        out, data=[str(beir)], methods=["ft"], seeds=[0], values={"lr": 0.1, "range": "1:50", "negatives": "hard"}
    )
    finish_planned(cell, static_model)
    same = {"learning_rate": 0.1, "range": (1, 50), "negatives": "hard"}
    assert prepare_grid([str(beir)], out, [str(static_model)], same, **ONE).done == {cell.folder}
    for name, value in (("learning_rate", 0.2), ("range", "1:60")):
        with pytest.raises(RunFolderError, match=f"started differently; pass another --out:\n{name}: the run has"):
            prepare_grid([str(beir)], out, [str(static_model)], {**same, name: value}, **ONE)
    with pytest.raises(RunFolderError, match="model_fingerprint: the run has"):
        prepare_grid([str(beir)], out, [str(bert_model)], same, **ONE)


def test_a_run_is_no_place_for_a_grid(trained, beir, static_model):
    with pytest.raises(RunFolderError, match="is a run; pass an empty or new folder"):
        prepare_grid([str(beir)], trained.path, [str(static_model)], {}, **ONE)


def test_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("opera.core.cache.PATIENCE", 0.0)
    grid = Grid(tmp_path, planned(tmp_path))
    with sole_use(tmp_path, "runs this grid"), pytest.raises(RunFolderError, match="runs this grid; wait until"):
        train_grid(grid)
    assert not grid.failed


def test_a_grid_trains_on_data_sets_together(compare, beir, second, static_model, tmp_path):
    out, both = tmp_path / "grid", {"mix": "equal", "one_set_per_step": True}
    (cell,) = planned(out, data=[str(beir)], also=[str(second)], methods=["ft"], seeds=[0], values=both)
    assert cell.folder.relative_to(out) == Path("topics+second/ft/steps10/seed0")
    call = cell.call()
    assert (call["data"], call["also"], call["mix"]) == (str(beir), [str(second)], "equal")
    finish_planned(cell, static_model)
    command = (beir, "--also", second, "--model", static_model, "--mix", "equal", "--set", "one_set_per_step=true")
    done = compare(*command, "--methods", "ft", "--seeds", "0", "--steps", "10", "--out", out, "--plan", "--json")
    assert [run["finished"] for run in json.loads(done.stdout)["runs"]] == [True]
    axes = {"methods": "ft", "seeds": [0], "steps": [10]}
    assert opera.compare(beir, also=[second], model=static_model, out=out, **axes, **both).tables
    with pytest.raises(opera.RunFolderError, match="pass another --out"):
        opera.compare(beir, also=[second], model=static_model, out=out, **axes)


@pytest.mark.parametrize("kind", [list, tuple])
def test_training_takes_one_data_set_and_says_where_others_go(kind, beir, second, static_model, tmp_path):
    with pytest.raises(opera.SettingError, match=r"^data: must be one data set, got a list; .* also="):
        opera.adapt(kind([beir, second]), model=static_model, out=tmp_path / "run")
    with pytest.raises(opera.SettingError, match=r"^also: must be a list of data sets"):
        opera.adapt(beir, also=str(second), model=static_model, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_seeds_come_outermost_and_each_cell_has_its_folder(tmp_path):
    cells = planned(tmp_path, methods=["ft", "sp:k=0.5"], steps=[5, 10], values={"lr": 0.1})
    folders = [str(cell.folder.relative_to(tmp_path)) for cell in cells]
    assert folders[:3] == ["x/ft/steps5/seed0", "x/sp,k=0.5/steps5/seed0", "x/ft/steps10/seed0"]
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
    assert len(set(folders)) == 8
    assert cells[1].values == {"learning_rate": 0.1, "k": 0.5, "method": "sp", "max_steps": 5, "seed": 0}
    assert cells[1].log == tmp_path / "x/sp,k=0.5/steps5/seed0.log"


def test_data_sets_of_one_name_and_odd_names_stay_inside_the_grid(tmp_path):
    names_by_source = {"a/x": "x", "b/x": "x-2", "b/x.jsonl": "x-3", "python:json": "python-json", "/": "-",
                       "c/é [b] %s": "é [b] %s", "irds:o/x": "x-4", "hf:..": "hf-.."}  # fmt: skip
    cells = planned(tmp_path, data=list(names_by_source), methods=["ft"], seeds=[0])
    assert [cell.folder.relative_to(tmp_path).parts[0] for cell in cells] == list(names_by_source.values())
    assert all(len(cell.folder.relative_to(tmp_path).parts) == 4 for cell in cells)


def test_several_models_have_folders_and_runs_of_one_model_stay_where_they_are(tmp_path):
    def folders(*models: str) -> list[str]:
        cells = planned(tmp_path, models=models, methods=["ft"], seeds=[0])
        return [str(cell.folder.relative_to(tmp_path)) for cell in cells]

    assert folders("a/m") == ["x/ft/steps10/seed0"]
    assert folders("a/m", "b/m") == ["m/x/ft/steps10/seed0", "m-2/x/ft/steps10/seed0"]
    for cell in planned(tmp_path, models=["a/m"], methods=["ft"], seeds=[0]):
        finish_planned(cell, ndcg=0.4)
    assert folders("a/m", "b/m") == ["x/ft/steps10/seed0", "m-2/x/ft/steps10/seed0"], "more models"
    for cell in planned(tmp_path / "two", models=["a/m", "b/m"], methods=["ft"], seeds=[0]):
        finish_planned(cell)
    (cell,) = planned(tmp_path / "two", models=["b/m"], methods=["ft"], seeds=[0])
    assert cell.folder == tmp_path / "two/m-2/x/ft/steps10/seed0", "fewer models"


def test_base_models_are_compared_and_measured_once(compare, beir, static_model, bert_model, tmp_path):
    out, models = tmp_path / "grid", [str(static_model), str(bert_model)]
    cells = planned(out, data=[str(beir)], models=models, methods=["ft"], seeds=[0])
    for cell, ndcg in zip(cells, (0.5, 0.2), strict=True):
        finish_planned(cell, Path(cell.model), ndcg, base=0.3)
        shutil.copytree(cell.model, cell.folder / "model")
    names = [model.rsplit("/", 2)[-1] for model in models]
    assert names == ["model", "model"], "both have the same name"
    comparison = opera.compare(beir, model=models, out=out, **ONE)
    (found,) = comparison.base_models
    rows = {row.model: row for row in found.rows}
    assert {name: row.encoding.dimension for name, row in rows.items()} == {"model": 24, "model-2": 32}
    weights = static_model.rglob("*.safetensors")
    assert rows["model"].encoding.megabytes == sum(file.stat().st_size for file in weights) / 1e6
    assert all(row.encoding.seconds > 0 and row.encoding.documents == 120 for row in found.rows)
    assert comparison.worse, "of the second model"
    written = (out / "models.json").stat().st_mtime_ns
    options = ["--out", out, "--methods", "ft", "--seeds", "0", "--steps", "10"]
    both = [word for model in models for word in ("--model", model)]
    done = compare(beir, *both, *options, "--fail-if-worse", status=3)
    assert f"topics: {found.conclusion}." in " ".join(done.stdout.split())
    assert json.loads(compare(beir, *both, *options, "--json").stdout)["base_models"][0]["recommended"] == "model"
    assert (out / "models.json").stat().st_mtime_ns == written
    plan = json.loads(compare(beir, *both, *options, "--plan", "--json").stdout)
    assert [run["model"] for run in plan["runs"]] == models
    page = opera.report(out).read_text()
    assert 0 < page.index(f"<p>{found.conclusion}.</p>") < page.index('<p class="over">topics with model')


def test_a_shared_setting_of_a_method_applies_to_the_methods_that_have_it(tmp_path):
    cells = planned(tmp_path, methods=["ft", "rp", "sp:k=0.75", "dp"], seeds=[0], values={"k": 0.5, "soft": False})
    special = [{name: cell.values[name] for name in ("k", "soft") if name in cell.values} for cell in cells]
    assert special == [{}, {"k": 0.5}, {"k": 0.75}, {"soft": False}]
    with pytest.raises(SettingError, match="setting 'k' applies only to"):
        planned(tmp_path, methods=["ft", "dp"], values={"k": 0.5})


def test_without_steps_each_data_set_decides(tmp_path):
    ft, five_epochs = planned(tmp_path, methods=["ft", "ft:epochs=5"], seeds=[0], steps=None)
    assert str(ft.folder.relative_to(tmp_path)) == "x/ft/autosteps/seed0"
    assert "max_steps" not in ft.values
    assert five_epochs.values["epochs"] == 5
    with pytest.raises(SettingError, match="epochs=5 and max_steps=10: both say how long to train"):
        planned(tmp_path, values={"epochs": 5})
