"""``opera train``, and how settings of recipes, ``--set`` and options merge."""

import json
import re

from commands import QUICK
from opera.cli.options import collect_values
from opera.config.training import TrainSettings
from opera.run_folder.folder import Run


def test_help_settings_lists_every_setting(run_opera):
    done = run_opera("train", "--help-settings")
    for word in ("temperature", "warmup_ratio", "max_query_length", "alpha_start", "Appendix C.2", "method dp"):
        assert word in done.stdout
    names = re.findall(r"^  (\w+) = ", done.stdout, re.MULTILINE)
    assert {*TrainSettings.model_fields} < set(names)


def test_a_plan_says_what_a_run_will_take_and_writes_nothing(run_opera, beir, static_model, tmp_path):
    command = ["train", beir, "--model", static_model, "--out", tmp_path / "run", "--steps", 50, "--plan"]
    done = run_opera(*command)
    assert re.search(r"^about \d+ s in all, \d\.\d GB of memory: two trainings of 50 steps of ", done.stdout)
    told = json.loads(run_opera(*command, "--json").stdout)
    assert told["seconds"] > 0
    assert told["settings"]["max_steps"] == 50
    assert not list(tmp_path.iterdir())


def test_a_learning_rate_far_above_the_usual_is_questioned(run_opera, beir, static_model, caplog):
    options = ["--out", "run", "--lr", "0.6", "--steps", "1", "--set", "guard=false", "--method", "FT"]
    run_opera("train", beir, "--model", static_model, *options)
    assert "times the automatic 0.01 for such a model" in caplog.text
    assert Run.open("run").settings["method"] == "ft"


def test_require_gain_the_verdict_first_and_each_size(run_opera, beir, static_model, monkeypatch):
    from opera.guard import choice

    monkeypatch.setattr("opera.run_folder.summary.LEAST_QUERIES", 10)
    for verdict, status, more in (("better", 0, []), ("kept", 3, ["--matryoshka", "8,4"])):
        monkeypatch.setattr(choice, "verdict_of", lambda share, dev, queries, verdict=verdict: verdict)
        options = ["--out", verdict, *QUICK, "--require-gain", *more]
        words = ["train", beir, "--model", static_model, *options]
        done = run_opera(*words, status=status)
        assert Run.open(verdict).finished
    first, verdict, *others = done.stdout.strip().splitlines()
    assert re.match(r"The right document is among the first ten for \d+ of \d+ held-out questions", first)
    assert re.match(r"(Base model kept|Worse|Keyword search).*nDCG@10", verdict)
    assert any(line.startswith("warning: 10 dev queries are few") for line in others)
    assert "denoise, 8 steps, learning rate 0.05, temperature 0.1" in others
    assert "SentenceTransformer('kept/model')" in done.stdout
    _, _, table = done.stdout.partition("nDCG@10 with the first dimensions only")
    assert re.findall(r"(all|8|4) +│ +\d+\.\d", table) == ["all", "8", "4"]
    values = json.loads(run_opera(*words, "--resume", "--json", status=3).stdout)
    guard = Run.open("kept").record.guard
    assert values["guard"] == json.loads(guard.model_dump_json())
    assert f" {100 * values['measures']['base']['nDCG@10']:.1f} " in table
    assert values["cutoffs"]["curve"][0]["answered"] == 16


def test_recipes_are_merged_in_their_order(run_opera, beir, static_model, tmp_path):
    (tmp_path / "data.yaml").write_text("max_steps: 8000\nnegatives: hard\nrange: 10:100\nlearning_rate: 1e-6\n")
    (tmp_path / "mine.yaml").write_text("max_steps: 2\nrange: 1:9\nquery_prompt: 'common1 '\nprecision: fp32\n")
    recipes = ["--config", "data.yaml", "--config", "models/static", "--config", "mine.yaml"]
    run_opera("train", beir, "--model", static_model, "--out", "run", *recipes, "--batch-size", 8)
    settings = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    names = ("negatives", "learning_rate", "max_steps", "range", "query_prompt", "per_device_train_batch_size")
    assert [settings[name] for name in names] == ["hard", 0.01, 2, [1, 9], "common1 ", 8]


def test_set_overrides_the_recipe_and_options_override_both(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("method: sp\nk: 0.5\nlr: 0.1\nsteps: 3\n")
    values = collect_values([str(recipe)], ["learning_rate=0.2", "k=0.4"], max_steps=9, method=None)
    assert values == {"method": "sp", "k": 0.4, "learning_rate": 0.2, "max_steps": 9}
    assert collect_values(None, None, method=None) == {}


def test_epochs_or_steps_on_the_command_line_replace_either_of_the_recipe(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    for length in ("steps: 300", "epochs: 3"):
        recipe.write_text(f"{length}\nlr: 0.1\n")
        assert collect_values([str(recipe)], None, epochs=5.0) == {"epochs": 5.0, "learning_rate": 0.1}
        assert collect_values([str(recipe)], ["steps=70"]) == {"max_steps": 70, "learning_rate": 0.1}
    both = collect_values(None, None, epochs=5.0, max_steps=7)
    assert both == {"epochs": 5.0, "max_steps": 7}, "for make_recipe to refuse"
