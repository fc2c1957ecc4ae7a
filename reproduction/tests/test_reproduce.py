"""``opera-paper`` end to end: a table of the paper from a small data set with a tiny model."""

import json

import pytest

import opera
from commands import Opera
from opera.experiments import grid as running
from processes import ForkedWorker


@pytest.fixture
def opera_paper(run_opera_paper, monkeypatch) -> Opera:
    """``opera-paper`` with processes that start quickly."""
    monkeypatch.setattr(running.subprocess, "Popen", ForkedWorker)
    return run_opera_paper


def test_from_data_to_the_table(opera_paper, beir, static_model, tmp_path):
    command = ["reproduce", "main", "--scale", "small", "--data", f"nfcorpus={beir}", "--model", static_model]
    command += ["--methods", "ft,sp", "--out", tmp_path / "grid", "--set", "global_batch_size=8"]
    done = opera_paper(*command)
    assert done.returncode == 0, done.stderr
    assert "nfcorpus: counts differ from Table 8" in done.stderr
    runs = [opera.Run.open(path.parent) for path in (tmp_path / "grid").rglob("run.json")]
    by_method = {run.settings["method"]: run for run in runs}
    assert set(by_method) == {"ft", "sp"}
    assert {run.settings["max_steps"] for run in runs} == {150}
    table = json.loads((tmp_path / "grid" / "main.json").read_text())
    rows = [row for row in table["rows"] if row["grid"] == "run"]
    assert {(row["method"], row["data"]) for row in rows} == {(m, "NFCorpus") for m in ("Pretrained", "FT", "SP")}
    for row in rows:
        run = by_method[row["method"].lower().replace("pretrained", "ft")]
        value = run.measures["base" if row["method"] == "Pretrained" else "fine_tuned"][row["our_measure"]]
        assert row["mean"] == pytest.approx(value)
    text = (tmp_path / "grid" / "main.txt").read_text()
    assert "Table 2: five methods on eight data sets" in text
    assert "B: HotpotQA" not in text, "a note on a data set that is not shown"
    assert (tmp_path / "grid" / "report.html").stat().st_size > 10_000

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("finished runs were trained again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "Processes", fail)
        again = opera_paper(*command, "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout) == table


def test_a_plan_is_a_list_of_commands(opera_paper):
    plan = json.loads(opera_paper("reproduce", "components", "--plan", "--seeds", "0", "--json").stdout)
    (command,) = plan["commands"]
    assert "--methods ft,sp,dp:soft=false,dp:alpha_start=4:alpha_end=4:v_end=0.25,dp --steps 32000" in command
    assert plan["hours_on_eight_a100s"] == pytest.approx(5 * 32_000 / 2.43 / 3600)
    assert plan["runs"] == 5


def test_tables_and_data_sets_are_listed(opera_paper):
    assert "0.524" in opera_paper("table", "hierarchy").stdout
    records = json.loads(opera_paper("table", "main", "--data", "FiQA", "--json").stdout)
    assert {record["data"] for record in records} == {"FiQA"}
    assert "5,416,568" in opera_paper("data").stdout


def test_a_data_set_is_fetched_and_counted(opera_paper, irds):
    printed = opera_paper("data", "nfcorpus").stdout
    assert printed.startswith("paper:nfcorpus: 3 documents")
    assert "nfcorpus: counts differ from Table 8: documents 3 instead of 3,633" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("table mian", "mian: no such table (known: main,"),
        ("table main --data arguana", "--data arguana: table main has no such data set"),
        ("data arguana", "paper:arguana: no such data set (known: nfcorpus,"),
        ("reproduce main --seeds one", "--seeds: must be whole numbers such as 0,1,2"),
        ("reproduce main --table-only", "no run of table main is finished"),
    ],
)
def test_wrong_input_is_one_message_and_status_2(opera_paper, arguments, message):
    done = opera_paper(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
