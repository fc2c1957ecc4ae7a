"""Tables in place of DATA: one string for every command, kept by a run, and read again."""

import csv
import json
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from commands import QUICK
from opera.data import load_data
from opera.data.loading import load_stored
from opera.data.names import TableSource
from opera.run_folder.folder import Run
from tiny_world import judged, write_table

COLUMNS = ("--columns", "query=q,document=shown,weight=n", "--columns", "split=part")


@pytest.fixture
def tables(beir, tmp_path, monkeypatch) -> Path:
    """The small BEIR data as a Parquet file of documents and a CSV file of clicks."""
    data = load_data(beir)
    corpus = data.corpus.table.rename_columns(["id", "title", "body"])
    pq.write_table(corpus, tmp_path / "d.parquet")
    texts = dict(zip(data.queries.ids(), data.queries.texts(), strict=True))
    clicks = [
        {"q": texts[query], "shown": document, "n": grade / 2, "part": split, "day": "m"}
        for split in data.splits
        for query, document, grade in judged(data, split)
    ]
    write_table(tmp_path / "clicks.csv", clicks)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_evaluate_search_and_resume(tables, run_opera, static_model):
    given = ("--documents", "d.parquet", "--pairs", "clicks.csv", *COLUMNS)
    command = ("train", *given, "--model", static_model, "--out", tables / "run", *QUICK)
    run_opera(*command)
    run = Run.open(tables / "run")
    source = run.record.data.source
    assert isinstance(source, TableSource)
    assert (source.pairs, source.documents) == ((("", f"{tables}/clicks.csv"),), f"{tables}/d.parquet")
    assert load_data(source).fingerprint == run.record.data.fingerprint
    run_opera(*command, "--resume")
    assert load_stored(source).fingerprint == run.record.data.fingerprint
    measured = json.loads(run_opera("evaluate", *given, "--model", run.path, "--json").stdout)
    assert measured["measures"]["nDCG@10"] == pytest.approx(run.measures["final"]["nDCG@10"])
    for words in (("t1w5 t1w6", *given), ("t1w5 t1w6", *shlex.split(str(source)))):
        assert len(json.loads(run_opera("search", *words, "--model", run.path, "--json").stdout)) == 5


def test_bad_rows_are_counted_by_kind_or_left_out_and_listed(tmp_path, run_opera, static_model):
    good = [f"t{row % 9}w5 größer {row};t{row % 9}w1 common{row}" for row in range(60)]
    bad = [";common", "t1w5;  ", "t1w5;a;b", "t1w5", 't1w5;"torn" apart']
    table, clean = tmp_path / "messy.csv", tmp_path / "clean.csv"
    table.write_text("\r\n".join(["Ticket title;KB article", *good[:30], *bad, *good[30:]]), "cp1252", newline="")
    clean.write_text("\n".join(["query;document", *good]), newline="")
    given = (table, "--columns", "query=Ticket title,document=KB article", "--encoding", "cp1252")
    refused = run_opera("inspect", *given, status=2)
    assert "pass --skip-bad-rows to leave out these 5 of 65 rows" in refused.stderr
    wrong = run_opera("inspect", *given[:3], "--skip-bad-rows", status=2)
    assert "give the encoding with --encoding" in wrong.stderr
    assert "would leave out 65 of 65 rows" in wrong.stderr
    command = ("train", *given, "--skip-bad-rows", "--model", static_model, "--out", tmp_path / "run", *QUICK)
    done = run_opera(*command)
    assert done.stdout.splitlines()[0] in (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    with (tmp_path / "run" / "skipped_rows.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["file", "line", "reason", "text"]
    assert [(int(line), text) for _, line, _, text in rows[1:]] == list(enumerate(bad, start=32))
    expected, data = load_data(clean), load_data(Run.open(tmp_path / "run").record.data.source)
    assert data.corpus.table == expected.corpus.table
    assert data.queries.table == expected.queries.table
    assert data.splits["train"].doc_rows.tolist() == expected.splits["train"].doc_rows.tolist()


def test_weak_pairs_and_the_command_that_is_printed(tmp_path, run_opera, static_model):
    rows = "".join(f"Größe t{n % 4}w{n} common{n};t{n % 4}w{n} w{n} é;{n}\r\n" for n in range(40))
    (tmp_path / "my docs.csv").write_text(f"Ticket title;KB article;Nr\r\n{rows}", "cp1252", newline="")
    given = ("pairs", tmp_path / "my docs.csv", "--columns", "title=Ticket title,text=KB article")
    done = run_opera(*given, "--encoding", "cp1252", "--out", tmp_path / "weak pairs.csv")
    assert done.stdout.startswith(f"{tmp_path / 'weak pairs.csv'}: 40 pairs (40 title)\n")
    command = shlex.split(done.stdout.splitlines()[1].replace("minilm", str(static_model)))
    assert command[:3] == ["opera", "train", str(tmp_path / "weak pairs.csv")]
    run_opera(*command[1:-1], tmp_path / "run", *QUICK)
    assert Run.open(tmp_path / "run").record.data.counts["test_queries"] == 4


def test_inspect_shows_lines_and_ends_with_a_command_that_trains(tmp_path, run_opera, static_model):
    folder = tmp_path / "Ana's tickets"
    folder.mkdir()
    rows = "".join(f"t{n % 4}w{n} größe{n};t{n % 4}w{n} common{n}\r\n" for n in range(60))
    (folder / "my tickets.csv").write_text(f"Title;Article\r\n;empty\r\n{rows}", "cp1252", newline="")
    given = ("Ana's tickets/my tickets.csv", "--columns", "query=Title,document=Article", "--encoding", "cp1252")
    options = ("--skip-bad-rows", "--query-prompt", "ask: ", "--model", static_model)
    page = run_opera("inspect", *given, *options, "--show", 60).stdout
    assert all(f"my tickets.csv:{line}: t" in page for line in range(3, 63))
    assert "dp" not in page.split()
    command = shlex.split(page.splitlines()[-1])
    assert command[:3] == ["opera", "train", given[0]]
    run_opera(*command[1:], *QUICK)
    assert Run.open(tmp_path / "run").settings["query_prompt"] == "ask: "
    again = run_opera("inspect", *given, "--skip-bad-rows", "--relevant-grade", 1).stdout
    assert again.splitlines()[-1].endswith("--model minilm --set relevant_grade=1 --out run-2")


def test_a_run_shows_what_matters_and_logs_the_details(tmp_path, run_opera, static_model, caplog):
    rows = "".join(f"t{n % 4}w{n} größe{n};t{n % 4}w{n} common{n}\r\n" for n in range(60))
    (tmp_path / "t.csv").write_text(f"Title;Article\r\n{rows}", "cp1252", newline="")
    (tmp_path / "decisions.csv").write_text("query_id,doc_id,query,decision\nq0,d0,t0w0 größe0,correct\n", "utf-8")
    given = (
        "t.csv",
        "--columns",
        "query=Title,document=Article",
        "--encoding",
        "cp1252",
        "--decisions",
        "decisions.csv",
    )
    with caplog.at_level("INFO", logger="opera"):
        run_opera("train", *given, "--model", static_model, "--out", "run", *QUICK)
    shown = [record.getMessage() for record in caplog.records]
    logged = (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    assert shown[0] == "reading t.csv"
    assert sum("learning rate" in line for line in shown) == 1
    for detail in ("train queries to test", "number of steps: given; automatic values suit"):
        assert detail in logged
        assert not any(detail in line for line in shown)
    assert "decisions.csv: is UTF-8" not in logged
    assert shown.index(next(line for line in shown if "building the training set" in line)) <= 12
