"""``opera train``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import QUICK, Opera
from grids import write_unfinished_run
from opera.cli.train import _how_to_continue


def test_help_settings(run_opera: Opera) -> None:
    done = run_opera("train", "--help-settings")
    assert done.returncode == 0
    for word in ("temperature", "warmup_ratio", "max_query_length", "alpha_start", "Appendix C.2", "method dp"):
        assert word in done.stdout


def test_it_trains_and_prints_both_measures(run_opera: Opera, beir: Path, static_model: Path) -> None:
    options = ["--method", "sp", "--out", "run", *QUICK, "--set", "k=0.5"]
    trained = run_opera("train", beir, "--model", static_model, *options)
    assert trained.returncode == 0, trained.stderr
    assert "nDCG@10" in trained.stdout
    assert "SentenceTransformer('run/model')" in trained.stdout
    assert "sp, 8 steps, learning rate 0.05, temperature 0.1; 16 test queries" in trained.stdout


def test_a_recipe_and_its_overrides(run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("method: rp\nk: 0.5\nmax_steps: 3\nper_device_train_batch_size: 4\n")
    arguments = ["train", beir, "--model", static_model, "--out", "run", "--config", "recipe.yaml", "--steps", 2]
    assert run_opera(*arguments).returncode == 0
    settings = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    assert (settings["method"], settings["k"], settings["max_steps"]) == ("rp", 0.5, 2)


@pytest.mark.parametrize(
    ("overwrite", "words"), [(False, "--resume starts"), (True, "--resume, without --overwrite, starts")]
)
def test_an_interrupted_run_is_continued_without_overwrite(tmp_path: Path, overwrite: bool, words: str) -> None:
    assert _how_to_continue(tmp_path, 0, overwrite) == "nothing was written yet: the same command starts again"
    write_unfinished_run(tmp_path / "run", {"method": "ft"}, "my-data")
    advice = _how_to_continue(tmp_path / "run", 0, overwrite)
    assert advice == f"no checkpoint was saved yet: the same command with {words} from step 0"
