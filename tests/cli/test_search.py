"""``opera search``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Opera
from opera.runs.folder import Run


def test_it_finds_the_best_documents(run_opera: Opera, trained: Run, beir: Path) -> None:
    search = ("search", beir, "t1w5 t1w6", "--model", trained.path)
    found = json.loads(run_opera(*search, "--top", 3, "--json").stdout)
    assert [hit["rank"] for hit in found] == [1, 2, 3]
    assert found[0]["id"] in run_opera(*search).stdout


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
