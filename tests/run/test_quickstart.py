"""The quickstart with the real MiniLM, cut down to seconds; `make quickstart` runs it whole."""

import io
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import opera.run.adapt as q
from grids import write_unfinished_run
from opera.cli import app
from opera.cli.options import Screen
from opera.cli.train import print_quickstart
from opera.core.errors import RunFolderError, SettingError
from opera.core.files import unfinished
from opera.data import load_data
from opera.methods import DEFAULT_METHOD


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """The data come from a small package, with few queries."""
    for name, value in {"TRAIN_QUERIES": 16, "DEV_QUERIES": 4, "TEST_QUERIES": 4, "PACKAGE": "opera"}.items():
        monkeypatch.setattr(q, name, value)
    monkeypatch.setattr(q, "RECIPE", {**q.RECIPE, "max_steps": 2, "per_device_train_batch_size": 8})


@pytest.fixture
def base(monkeypatch) -> None:
    def adapt(*_: object, out: Path, **settings: object) -> None:
        if not out.exists():
            write_unfinished_run(out, {"method": "ft"}, "data")

    monkeypatch.setattr(q, "adapt", adapt)


@pytest.mark.slow
def test_quickstart_end_to_end(tmp_path):
    run = q.quickstart(tmp_path / "quickstart")
    assert run.finished
    assert (run.record.model.source, run.settings["method"]) == ("minilm", DEFAULT_METHOD)
    assert set(load_data(tmp_path / "quickstart" / "data").splits) == {"train", "dev", "test"}
    text = io.StringIO()
    print_quickstart(Screen(text, 600), run)
    shown = text.getvalue()
    for text in ("nDCG@10", "base", "final", str(run.model_path), "SentenceTransformer(", "opera search"):
        assert text in shown
    search = next(line for line in shown.splitlines() if line.strip().startswith("opera search"))
    done = CliRunner().invoke(app, shlex.split(search)[1:4])  # what follows says what the command is for
    assert done.exit_code == 0, done.output
    assert "your question" in done.output
    with pytest.raises(RunFolderError, match="holds an earlier quickstart; pass --overwrite"):
        q.quickstart(tmp_path / "quickstart")


@pytest.mark.usefixtures("base")
def test_an_earlier_quickstart_is_replaced_when_asked(tmp_path):
    with pytest.raises(SettingError, match="unknown method"):
        q.quickstart(tmp_path, method="dq")
    q.quickstart(tmp_path)
    unfinished(tmp_path / "data").mkdir()  # of one that was killed
    (tmp_path / ".data.old").mkdir()
    (tmp_path / "data" / "corpus.jsonl").write_text("")
    with pytest.raises(RunFolderError, match="holds an earlier quickstart; pass --overwrite"):
        q.quickstart(tmp_path)
    q.quickstart(tmp_path, overwrite=True)
    assert (tmp_path / "data" / "corpus.jsonl").stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == [".data.old", "data", "run"], "the first is the user's"
