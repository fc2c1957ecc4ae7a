"""The summary of a run: each fact once, for every reader."""

import html
import re

import pytest

from opera.run_folder.summary import RunSummary, verdict_of


def test_all_readers_show_the_facts_of_the_summary(trained):
    summary, guard = trained.summary, trained.record.guard
    assert summary.verdict == verdict_of(guard)
    change = summary.changes["nDCG@10"]
    measured = [100 * trained.measures[model]["nDCG@10"] for model in ("base", "final")]
    assert 100 * change.difference == pytest.approx(measured[1] - measured[0])
    card = (trained.model_path / "README.md").read_text()
    page = html.unescape(trained._repr_html_() or "")
    for line in trained.headlines:
        assert line in card
        assert line in page
    assert f"{measured[1]:.1f} | {change.in_points()} |" in card
    assert f"<td>{measured[1]:.1f}</td>" in page
    assert repr(trained).endswith(f"steps: {trained.headlines[0]})")
    values = summary.as_dict()
    assert (values["verdict"], values["measures"]) == (summary.verdict, trained.measures)
    assert values["changes"]["nDCG@10"] == vars(change)
    assert values["guard"] == guard.model_dump()


def test_the_next_commands_name_the_run(trained):
    commands = trained.summary.next_commands()
    assert list(commands) == ["review", "search", "report"]
    assert all(re.match(f"opera {name} {trained.path}", command) for name, command in commands.items())
    assert trained.summary.next_commands(trained.path.parent)["report"] == f"opera report {trained.path.parent}"


def test_a_run_on_vectors_has_no_search(trained):
    record = trained.record.model_copy(update={"settings": {**trained.settings, "query_vectors": "q.npy"}})
    summary = RunSummary.of(trained.path, record, trained.measures, trained.per_query())
    assert list(summary.next_commands()) == ["review", "report"]
