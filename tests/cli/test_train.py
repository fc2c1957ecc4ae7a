"""``opera train``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commands import QUICK, Opera
from grids import write_unfinished_run
from opera.cli.train import _how_to_continue
from opera.config.training import TrainSettings
from opera.runs.folder import Run


def test_help_settings(run_opera: Opera) -> None:
    done = run_opera("train", "--help-settings")
    assert done.returncode == 0
    for word in ("temperature", "warmup_ratio", "max_query_length", "alpha_start", "Appendix C.2", "method dp"):
        assert word in done.stdout
    names = re.findall(r"^  (\w+) = ", done.stdout, re.MULTILINE)
    assert {*TrainSettings.model_fields} < set(names)


def test_a_plan_says_what_a_run_will_take_and_writes_nothing(
    run_opera: Opera, beir: Path, bert_model: Path, tmp_path: Path
) -> None:
    command = ["train", str(beir), "--model", str(bert_model), "--out", str(tmp_path / "run"), "--plan"]
    done = run_opera(*command)
    assert done.returncode == 0
    assert re.search(r"^about \d+ s in all, \d\.\d GB of memory: 100 steps of ", done.stdout)
    told = json.loads(run_opera(*command, "--json").stdout)
    assert told["seconds"] > 0
    assert told["settings"]["max_steps"] == 50
    assert not list(tmp_path.iterdir())
    refused = run_opera(*command, "--resume")
    assert (refused.returncode, "leave --resume out" in refused.stderr) == (2, True)


def test_a_learning_rate_far_above_the_usual_is_questioned(
    run_opera: Opera, beir: Path, static_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ["--steps", "1", "--set", "guard=false", "--overwrite", "--method", "FT"]
    for rate, asked in (("0.5", 0), ("0.6", 1)):
        caplog.clear()
        done = run_opera("train", beir, "--model", static_model, "--out", "run", "--lr", rate, *options)
        assert done.returncode == 0, done.stderr
        assert sum("times the automatic 0.01 of such a model" in line for line in caplog.messages) == asked
    assert Run.open("run").settings["method"] == "ft"


def test_require_gain_and_the_verdict_first(
    run_opera: Opera,
    beir: Path,
    static_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from opera.guard import choice

    monkeypatch.setattr("opera.runs.verdict.LEAST_QUERIES", 10)
    for verdict, status in (("better", 0), ("kept", 3)):
        monkeypatch.setattr(choice, "verdict_of", lambda share, dev, queries, found=verdict: found)
        words = ["train", beir, "--model", static_model, "--out", verdict, *QUICK, "--require-gain"]
        done = run_opera(*words)
        assert done.returncode == status, done.stderr
        assert Run.open(verdict).finished
    first, *others = done.stdout.strip().splitlines()
    assert re.match(r"(No sure gain on dev|Worse): .*nDCG@10", first)
    assert any(line.startswith("warning: 10 dev queries are few") for line in others)
    assert "denoise, 8 steps, learning rate 0.05, temperature 0.1; 16 test queries" in others
    assert "95% interval" in done.stdout
    assert "SentenceTransformer('kept/model')" in done.stdout
    assert len([message for message in caplog.messages if message.endswith("s so far)")]) >= 6
    values = json.loads(run_opera(*words, "--resume", "--json").stdout)
    guard = Run.open("kept").record.guard
    assert guard is not None
    assert values["guard"] == json.loads(guard.model_dump_json())
    assert values["cutoffs"]["curve"][0]["answered"] == 16
    change = values["changes"]["nDCG@10"]
    assert change["low"] <= change["difference"] <= change["high"]


def test_recipes_are_merged_in_their_order(run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("max_steps: 8000\nnegatives: hard\nrange: 10:100\nlearning_rate: 1e-6\n")
    (tmp_path / "mine.yaml").write_text("max_steps: 2\nrange: 1:9\nquery_prompt: 'common1 '\nprecision: fp32\n")
    recipes = ["--config", "data.yaml", "--config", "models/static", "--config", "mine.yaml"]
    done = run_opera("train", beir, "--model", static_model, "--out", "run", *recipes, "--batch-size", 8)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    names = ("negatives", "learning_rate", "max_steps", "range", "query_prompt", "per_device_train_batch_size")
    assert [settings[name] for name in names] == ["hard", 0.01, 2, [1, 9], "common1 ", 8]


@pytest.mark.parametrize(("overwrite", "without"), [(False, ""), (True, ", without --overwrite,")])
def test_an_interrupted_run_is_continued_without_overwrite(tmp_path: Path, overwrite: bool, without: str) -> None:
    assert _how_to_continue(tmp_path, 0, overwrite) == "nothing was written yet: the same command starts again"
    write_unfinished_run(tmp_path / "run", {"method": "ft"}, "my-data")
    advice = _how_to_continue(tmp_path / "run", 0, overwrite)
    assert advice == f"the same command with --resume{without} continues from the last checkpoint"


def test_matryoshka_prints_each_size(run_opera: Opera, beir: Path, static_model: Path) -> None:
    command = ["train", beir, "--model", static_model, "--out", "run", *QUICK, "--matryoshka", "8,4"]
    done = run_opera(*command)
    assert done.returncode == 0, done.stderr
    _, _, table = done.stdout.partition("nDCG@10 with the first dimensions only")
    assert re.findall(r"(all|8|4) +│ 0\.\d{4}", table) == ["all", "8", "4"]
    shown = json.loads(run_opera(*command, "--json", "--overwrite").stdout)
    assert [size["size"] for size in shown["matryoshka"]] == [8, 4]
