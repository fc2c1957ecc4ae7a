"""``opera reproduce`` end to end, on a made-up data set with a tiny model: in shards, again, and its plan."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import Done, opera_here
from opera.cli import main
from opera.core.locks import sole_use
from opera.experiments.grid import run as running
from opera.runs.folder import Run
from processes import ForkedWorker, torchrun

METHODS = ("ft", "sp")


def command(beir: Path, model: Path, out: Path, *more: object) -> list[str]:
    """Arguments of a small reproduction of Table 2 on one data set."""
    given = ["main", "--scale", "small", "--data", f"nfcorpus={beir}", "--model", model, "--out", out]
    return ["reproduce", *map(str, (*given, "--methods", "ft,sp", "--set", "save_steps=20", *more))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Path:
    """A grid that the command finished."""
    out = tmp_path_factory.mktemp("reproduced") / "grid"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.subprocess, "Popen", ForkedWorker)
        patch.setattr(sys, "argv", ["opera", *command(beir, static_model, out)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return out


def records(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((out / "main.json").read_text())["rows"]
    return rows


def test_the_table_and_the_report_hold_what_the_runs_do(finished: Path) -> None:
    runs = [Run.open(path.parent) for path in finished.rglob("run.json")]
    assert sorted(str(run.settings["method"]) for run in runs) == sorted(METHODS)
    assert {run.settings["max_steps"] for run in runs} == {44}
    rows = [row for row in records(finished) if row["grid"] == "run"]
    assert {(row["method"], row["data"]) for row in rows} == {
        (method, "NFCorpus") for method in ("Pretrained", "FT", "SP")
    }
    assert all(row["mean"] is not None and row["paper"] is not None for row in rows)
    by_method = {run.settings["method"]: run for run in runs}
    for row in rows:
        run, when = by_method[row["method"].lower().replace("pretrained", "ft")], "fine_tuned"
        value = run.measures["before" if row["method"] == "Pretrained" else when][row["our_measure"]]
        assert row["mean"] == pytest.approx(value)
    text = (finished / "main.txt").read_text()
    assert "Table 2: five methods on eight data sets" in text
    assert "Made with --scale small" in text
    assert "The grid's runs: preset paper, 1 seed." in text
    assert "B: HotpotQA" not in text
    assert (finished / "report.html").stat().st_size > 10_000


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``opera`` in this process, its workers forked."""
    monkeypatch.setattr(running.subprocess, "Popen", ForkedWorker)

    def run(arguments: Sequence[object]) -> Done:
        return opera_here(tmp_path, arguments, monkeypatch, capsys)

    return run


def test_shards_make_the_same_table(finished: Path, here: Any, beir: Path, static_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    for number, done in ((1, 1), (2, 2)):
        call = here(command(beir, static_model, out, "--shard", f"{number}/2"))
        assert call.returncode == 0, call.stderr
        assert f"shard {number}/2: 1 of 2 cells" in call.stderr
        assert f"{done} of all 2 cells are done" in call.stdout
        assert not (out / "main.json").exists()
    call = here(command(beir, static_model, out, "--table-only"))
    assert call.returncode == 0, call.stderr
    assert records(out) == records(finished)
    assert "nfcorpus has other counts than Table 8" in (out / "main.txt").read_text()
    assert (out / "main.txt").read_text() == (finished / "main.txt").read_text()
    assert (out / "report.html").is_file()


def test_a_finished_one_prints_its_table_again(
    finished: Path, here: Any, beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "Processes", None)
    call = here(command(beir, static_model, finished, "--json"))
    assert call.returncode == 0
    assert call.stderr.endswith("all 2 cells are already done\n")
    whole = json.loads(call.stdout)
    assert (whole["cells"], whole["finished"], whole["seeds"]) == (2, 2, [0])
    assert whole["rows"] == records(finished)


def test_other_settings_of_the_same_folder_are_refused(
    finished: Path, here: Any, beir: Path, static_model: Path
) -> None:
    call = here(command(beir, static_model, finished, "--preset", "release"))
    assert call.returncode == 2
    assert "holds a grid with settings preset=paper on nfcorpus; this call has preset=release" in call.stderr


def test_one_process_at_a_time_and_ctrl_c_says_how_to_continue(
    finished: Path, here: Any, beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opera.core.locks.PATIENCE", 0.0)
    with sole_use(finished, "runs this grid"):
        call = here(command(beir, static_model, finished))
        assert (call.returncode, call.stdout) == (2, "")
        assert "runs this grid; wait until it is done" in call.stderr
        call = here(command(beir, static_model, finished, "--shard", "1/2"))
        assert call.returncode == 2

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("opera.experiments.paper.reproduce.run_grid", interrupt)
    call = here(command(beir, static_model, tmp_path / "grid"))
    assert call.returncode == 130
    assert "opera: interrupted; 0 of 2 cells are done; the same command continues where it stopped" in call.stderr
    assert not (tmp_path / "grid" / "main.txt").exists()


def test_cells_that_fail_end_in_status_1_and_a_table_of_the_others(
    finished: Path, here: Any, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "grid"))
    spoilt = out / "nfcorpus" / "sp" / "steps44" / "seed0"
    shutil.rmtree(spoilt)
    spoilt.mkdir()
    (spoilt / "notes").touch()
    call = here(command(beir, static_model, out))
    assert call.returncode == 1
    assert "1 cell failed, see above; the same command tries again" in call.stderr
    assert "1 of 2 cells are finished; the others are missing here." in call.stdout
    assert {row["method"]: row["grid"] for row in records(out)}["SP"] == "not run"


@pytest.mark.slow
def test_under_torchrun_all_processes_train_each_cell(beir: Path, static_model: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "grid", tmp_path / "log"
    arguments = command(beir, static_model, out, "--methods", "ft,dp")
    for _ in range(2):  # the second finds all of it done
        assert torchrun(["-m", "opera", *arguments], log).wait() == 0, log.read_text()
    assert "all 2 cells are already done" in log.read_text()
    runs = [Run.open(path.parent) for path in out.rglob("run.json")]
    assert [run.record.processes for run in runs] == [2, 2]
    assert {row["method"] for row in records(out) if row["grid"] == "run"} == {"Pretrained", "FT", "DP"}


def test_a_plan_needs_neither_the_data_nor_the_model(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.experiments.paper.reproduce.is_here", lambda source: False)
    call = here(["reproduce", "components", "--plan", "--seeds", "0", "--json"])
    assert call.returncode == 0, call.stderr
    plan = json.loads(call.stdout)
    assert [cell["method"] for cell in plan["cells"]] == [
        "ft", "sp", "dp:soft=false", "dp:alpha_start=4:alpha_end=4:v_end=0.25", "dp",
    ]  # fmt: skip
    assert {cell["steps"] for cell in plan["cells"]} == {32_000}
    assert plan["seconds_left"] is None
    hours = 5 * 32_000 / 2.43 / 3600
    assert any(f"about {hours:.0f} hours" in note for note in plan["notes"])


def test_a_plan_with_a_setting_that_the_model_refuses_is_wrong_input(here: Any, beir: Path, static_model: Path) -> None:
    call = here(command(beir, static_model, Path("grid"), "--plan", "--methods", "FT", "--set", "max_passage_length=1"))
    assert call.returncode == 2, call.stderr
    assert "max_passage_length" in call.stderr
    assert "timing" not in call.stderr


def test_a_plan_times_steps_on_data_that_are_here(here: Any, beir: Path, static_model: Path, tmp_path: Path) -> None:
    call = here(command(beir, static_model, tmp_path / "grid", "--plan", "--shard", "1/2"))
    assert call.returncode == 0, call.stderr
    assert "0 of 1 cells done, about" in call.stdout
    assert "each run keeps its trained model" in call.stdout
    assert "eight A100s" not in call.stdout
    assert "nfcorpus has other counts than Table 8" in " ".join(call.stdout.split())
    assert not (tmp_path / "grid").exists()
