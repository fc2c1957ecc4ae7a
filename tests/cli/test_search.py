"""``opera search``."""

from __future__ import annotations

import json
from pathlib import Path

from commands import Opera
from opera.runs.folder import Run


def test_it_finds_the_best_documents(run_opera: Opera, trained: Run, beir: Path) -> None:
    search = ("search", beir, "t1w5 t1w6", "--model", trained.path)
    found = json.loads(run_opera(*search, "--top", 3, "--json").stdout)
    assert [hit["rank"] for hit in found] == [1, 2, 3]
    assert found[0]["id"] in run_opera(*search).stdout


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
