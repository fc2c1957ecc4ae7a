"""``opera-paper`` end to end: a table of the paper from a small data set with a tiny model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opera
from opera.experiments.grid import run as running
from opera_paper.cli import main
from processes import ForkedWorker


@pytest.fixture
def opera_paper(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """``opera-paper`` in this process: exit status, standard output and standard error."""
    monkeypatch.setattr(running.subprocess, "Popen", ForkedWorker)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["opera-paper", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_from_data_to_the_table(opera_paper: Any, beir: Path, static_model: Path, tmp_path: Path) -> None:
    command = ["reproduce", "main", "--scale", "small", "--data", f"nfcorpus={beir}", "--model", static_model]
    command += ["--methods", "ft,sp", "--out", tmp_path / "grid", "--set", "global_batch_size=8"]
    status, _, errors = opera_paper(*command)
    assert status == 0, errors
    assert "nfcorpus has other counts than Table 8" in errors
    runs = [opera.Run.open(path.parent) for path in (tmp_path / "grid").rglob("run.json")]
    by_method = {run.settings["method"]: run for run in runs}
    assert set(by_method) == {"ft", "sp"}
    assert {run.settings["max_steps"] for run in runs} == {150}
    table = json.loads((tmp_path / "grid" / "main.json").read_text())
    rows = [row for row in table["rows"] if row["grid"] == "run"]
    assert {(row["method"], row["data"]) for row in rows} == {(m, "NFCorpus") for m in ("Pretrained", "FT", "SP")}
    for row in rows:
        run = by_method[row["method"].lower().replace("pretrained", "ft")]
        value = run.measures["before" if row["method"] == "Pretrained" else "fine_tuned"][row["our_measure"]]
        assert row["mean"] == pytest.approx(value)
    text = (tmp_path / "grid" / "main.txt").read_text()
    assert "Table 2: five methods on eight data sets" in text
    assert "A small model and few steps" in text
    assert "B: HotpotQA" not in text, "a note on a data set that is not shown"
    assert (tmp_path / "grid" / "report.html").stat().st_size > 10_000

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("finished runs were trained again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "Processes", fail)
        status, again, _ = opera_paper(*command, "--json")
    assert status == 0
    assert json.loads(again) == table
    status, _, errors = opera_paper(*command, "--set", "temperature=0.5")
    assert status == 2
    assert "holds a grid with settings" in errors


def test_a_run_that_fails_ends_in_status_1_and_a_table_of_the_others(
    opera_paper: Any, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    command = ["reproduce", "main", "--scale", "small", "--data", f"nfcorpus={beir}", "--model", static_model]
    command += ["--methods", "ft,sp", "--out", tmp_path / "grid", "--set", "global_batch_size=8"]
    spoilt = tmp_path / "grid" / "nfcorpus" / beir.name / "sp" / "steps150" / "seed0"
    spoilt.mkdir(parents=True)
    (spoilt / "notes").touch()
    (tmp_path / "grid" / "nfcorpus" / "grid.json").write_text('{"model": "other", "settings": {}}')
    status, output, errors = opera_paper(*command)
    assert status == 1, errors
    assert "opera-paper: error:" in errors
    assert "1 of 2 runs are finished." in output


def test_a_plan_is_a_list_of_commands(opera_paper: Any) -> None:
    status, output, _ = opera_paper("reproduce", "components", "--plan", "--seeds", "0", "--json")
    assert status == 0
    plan = json.loads(output)
    (command,) = plan["commands"]
    assert "--methods ft,sp,dp:soft=false,dp:alpha_start=4:alpha_end=4:v_end=0.25,dp --steps 32000" in command
    assert plan["hours_on_eight_a100s"] == pytest.approx(5 * 32_000 / 2.43 / 3600)
    assert plan["runs"] == 5


def test_tables_and_data_sets_are_listed(opera_paper: Any) -> None:
    assert "Table 2" in opera_paper("table")[1]
    assert "0.524" in opera_paper("table", "hierarchy")[1]
    records = json.loads(opera_paper("table", "main", "--data", "FiQA", "--json")[1])
    assert {record["data"] for record in records} == {"FiQA"}
    assert "5,416,568" in opera_paper("data")[1]


def test_a_data_set_is_fetched_and_counted(opera_paper: Any, irds: Path) -> None:
    status, output, _ = opera_paper("data", "nfcorpus")
    assert status == 0
    assert output.startswith("paper:nfcorpus: 3 documents")
    assert "nfcorpus has other counts than Table 8: documents 3, there 3,633" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table", "mian"), "mian: no such table (known: main,"),
        (("table", "main", "--data", "arguana"), "--data arguana: table main has no such data set"),
        (("data", "arguana"), "paper:arguana: no such data set (known: nfcorpus,"),
        (("reproduce", "main", "--seeds", "one"), "--seeds: must be whole numbers such as 0,1,2"),
        (("reproduce", "main", "--set", "lr"), "--set lr: must be key=value"),
        (("reproduce", "main", "--table-only"), "no run of table main is finished"),
    ],
)
def test_wrong_input_is_one_message_and_status_2(opera_paper: Any, arguments: tuple[str, ...], message: str) -> None:
    status, output, errors = opera_paper(*arguments)
    assert (status, output) == (2, "")
    assert message in errors
