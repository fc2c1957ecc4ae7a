"""The command line as scripts see it: standard output, messages, exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from opera.cli import main

COMMANDS = [
    "train", "evaluate", "score", "mine", "search",
    "compare", "report", "inspect", "theory", "paper", "quickstart",
]  # fmt: skip


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Opera = Callable[..., Done]


@pytest.fixture
def run_opera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Opera:
    """Run the command line in this process, in an empty folder; a process of its own takes seconds to start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["opera", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return Done(status, captured.out, captured.err)

    return call


def test_the_installed_command(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "opera"), "evaluate", "absent", "--model", "absent"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("opera: error: absent: no such file or folder; pass a BEIR folder")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_help_has_an_example_for_every_command(run_opera: Opera) -> None:
    listing = run_opera("--help").stdout
    for command in COMMANDS:
        assert command in listing
        assert f"Example: opera {command}" in " ".join(run_opera(command, "--help").stdout.split())


def test_help_settings(run_opera: Opera) -> None:
    done = run_opera("train", "--help-settings")
    assert done.returncode == 0
    for word in ("temperature", "warmup_ratio", "max_query_length", "alpha_start", "Appendix C.2", "method dp"):
        assert word in done.stdout


def test_train_evaluate_search_score_mine(run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path) -> None:
    quick = ["--steps", 8, "--batch-size", 8, "--lr", 0.05, "--set", "temperature=0.1"]
    trained = run_opera(
        "train", beir, "--model", static_model, "--method", "sp", "--out", "run", *quick, "--set", "k=0.5"
    )
    assert trained.returncode == 0, trained.stderr
    assert "nDCG@10" in trained.stdout
    assert "SentenceTransformer('run/model')" in trained.stdout
    assert "mask_known_positives=true" in trained.stdout

    evaluated = run_opera(
        "evaluate", beir, "--model", "run", "--split", "test", "--full", "--json", "--run-file", "out.trec"
    )
    result = json.loads(evaluated.stdout)
    assert result["measures"] == pytest.approx(json.loads((tmp_path / "run/measures.json").read_text())["after"])
    assert result["queries"] == 16
    assert (tmp_path / "out.trec").read_text().startswith("test0 Q0 d")
    full = json.loads(run_opera("evaluate", beir, "--model", "run", "--full", "--json").stdout)["measures"]
    assert len(full) == 30
    assert "nDCG@100" in full

    found = json.loads(run_opera("search", beir, "t1w5 t1w6", "--model", "run", "--top", 3, "--json").stdout)
    assert [hit["rank"] for hit in found] == [1, 2, 3]
    assert found[0]["id"] in run_opera("search", beir, "t1w5 t1w6", "--model", "run").stdout

    assert run_opera("score", beir, "--model", static_model, "--out", "pairs.parquet").returncode == 0
    table = pq.read_table(tmp_path / "pairs.parquet")
    assert table.column_names == ["query_id", "doc_id", "grade", "similarity", "loss"]
    assert run_opera("score", beir, "--model", static_model, "--out", "pairs.tsv").returncode == 0
    strict = ("--relevant-grade", 2, "--out", "strict.tsv")
    assert run_opera("score", beir, "--model", static_model, *strict).returncode == 0
    loose, fewer = ((tmp_path / name).read_text().splitlines() for name in ("pairs.tsv", "strict.tsv"))
    assert 1 < len(fewer) < len(loose)
    assert all(line.split("\t")[2] == "2" for line in fewer[1:])
    assert len((tmp_path / "pairs.tsv").read_text().splitlines()) == len(table) + 1

    mined = run_opera("mine", beir, "--model", static_model, "--range", "2:30", "--keep", 4, "--out", "mined.jsonl")
    assert mined.returncode == 0, mined.stderr
    record = json.loads((tmp_path / "mined.jsonl").read_text().splitlines()[0])
    assert set(record) == {"query", "pos", "neg"}
    assert len(record["neg"]) <= 4
    again = run_opera(
        "train", "mined.jsonl", "--model", static_model, "--method", "ft", "--out", "again", *quick, "--json"
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["run"] == "again"


def test_a_recipe_and_its_overrides(run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("method: rp\nk: 0.5\nmax_steps: 3\nper_device_train_batch_size: 4\n")
    arguments = ["train", beir, "--model", static_model, "--out", "run", "--config", "recipe.yaml", "--steps", 2]
    assert run_opera(*arguments).returncode == 0
    settings = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    assert (settings["method"], settings["k"], settings["max_steps"]) == ("rp", 0.5, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "BEIR", "--model", "MODEL", "--out", "x", "--set", "temprature=1"], "did you mean 'temperature'?"),
        (["train", "BEIR", "--model", "MODEL", "--out", "x", "--steps", "0"], "max_steps: must be greater"),
        (["train", "BEIR", "--model", "MODEL", "--out", "x", "--method", "dq"], "unknown method 'dq'"),
        (["train", "BEIR", "--model", "MODEL", "--out", "x", "--lr", "1", "--set", "learning_rate=2"], "given twice"),
        (["train", "absent", "--model", "MODEL", "--out", "x"], "absent: no such file or folder"),
        (["train", "BEIR", "--model", ".", "--out", "x"], "not a model folder"),
        (["train", "BEIR", "--out", "x"], "--model"),
        (["evaluate", "BEIR", "--model", "MODEL", "--split", "dev"], "has no split 'dev' (it has: test, train)"),
        (["evaluate", "BEIR", "--model", "MODEL", "--measures", "ndcg"], "unknown measure 'ndcg'"),
        (["evaluate", "BEIR", "--model", "MODEL", "--run-file", "x.csv"], "must end in .trec or .run or .txt"),
        (["score", "BEIR", "--model", "MODEL", "--out", "x.csv"], "must end in .parquet or .tsv or .jsonl"),
        (["score", "BEIR", "--model", "MODEL", "--out", "no/x.tsv"], "its folder does not exist"),
        (["mine", "BEIR", "--model", "MODEL", "--out", "x.jsonl", "--range", "9:1"], "1 <= LO <= HI"),
        (["search", "BEIR", " ", "--model", "MODEL"], "query: must not be empty"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_input_exits_2_with_one_message_and_writes_nothing(
    run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    places = {"BEIR": beir, "MODEL": static_model}
    before = set(tmp_path.iterdir())
    done = run_opera(*(places.get(argument, argument) for argument in arguments))
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert set(tmp_path.iterdir()) == before


def test_hostile_text_is_printed_as_it_is(run_opera: Opera, static_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "[red]d[/red]", "text": "[bold]t1w1[/bold] [link=x]"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "t1w1"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t[red]d[/red]\t1\n")
    done = run_opera("search", folder, "[blink]t1w1", "--model", static_model)
    assert done.returncode == 0, done.stderr
    for text in ("[red]d[/red]", "[bold]t1w1[/bold] [link=x]", "[blink]t1w1"):
        assert text in done.stdout
