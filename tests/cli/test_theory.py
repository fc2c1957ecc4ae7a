"""``opera theory``."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from opera.cli import app
from opera.core.errors import SettingError

SMALL = ["--set", "repeats=20", "--set", "documents=20"]


def test_the_command_prints_a_table_and_writes_the_chart(tmp_path: Path) -> None:
    out = tmp_path / "theory.svg"
    done = CliRunner().invoke(app, ["theory", "--noise", "0.3", "--auc", "0.8", "--out", str(out), *SMALL])
    assert done.exit_code == 0, done.output
    assert "0.656" in done.output or "0.657" in done.output
    chart = out.read_text()
    assert chart.startswith("<?xml")
    done = CliRunner().invoke(app, ["theory", "--auc", "0.8", "--json", "--out", str(out), "--overwrite", *SMALL])
    records = json.loads(done.output)["points"]
    assert [record["noise"] for record in records] == [0.1, 0.3, 0.5]
    assert records[1]["closed_form"]["sp"]["precision"] > records[1]["true_share"]


def test_bad_options_are_reported(tmp_path: Path) -> None:
    for arguments, words in (
        (["--noise", "1.5"], "noise: must be less than 1, got 1.5"),
        (["--out", str(tmp_path / "chart.gif")], "must end in .svg or .png or .pdf"),
        (["--set", "gamma=1"], "unknown setting 'gamma' (opera theory --help lists all)"),
        (["--set", "noise=0.2"], "--set noise: has an option of its own"),
    ):
        done = CliRunner().invoke(app, ["theory", *arguments])
        assert isinstance(done.exception, SettingError)
        assert words in str(done.exception)
