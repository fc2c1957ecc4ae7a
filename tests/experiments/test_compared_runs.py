"""Runs compared with each other on the same test queries, with given and with corrected labels."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import opera
from grids import RunsFolder
from opera.core.errors import DataError, RunFolderError, SettingError
from opera.experiments.runs import compare_runs
from opera.run_folder.folder import PER_QUERY_FILE, REVIEW_ITEMS_FILE, RunWriter
from tiny_world import write_table

QUERIES = [f"q{number}" for number in range(24)]
GOOD, BAD = [1, 1, 2], [2, 3, 9]
"""Ranks of the relevant document, query by query, over and over."""


def add(folder: RunsFolder, name: str, ranks: Sequence[int], relevant: str = "right", **settings: object) -> Path:
    """Add a run whose final models rank the documents ``right`` at these ranks; ``wrong`` is always at rank 5."""
    made = folder.add(base=np.zeros(9), **settings)
    run = made.rename(made.with_name(name))
    rankings = []
    for rank in np.resize(ranks, len(QUERIES)).tolist():
        ranking = [f"other{number}" for number in range(10)]
        ranking[4], ranking[rank - 1] = "wrong", "right"
        rankings.append(ranking)
    columns = {
        "query_id": QUERIES, "relevant": [[relevant]] * len(QUERIES), "grades": [[1]] * len(QUERIES),
        "base documents": [["other0"]] * len(QUERIES), "final documents": rankings,
    }  # fmt: skip
    RunWriter(run).write_table(PER_QUERY_FILE, columns)
    RunWriter(run).write_json(REVIEW_ITEMS_FILE, {"test": {"pairs": [], "missing": []}})
    return run


def ndcg(ranks: Sequence[int]) -> float:
    """nDCG@10 of one relevant document at these ranks, in points."""
    return 100 * float(np.mean(1 / np.log2(1 + np.array(ranks))))


def decisions(path: Path) -> Path:
    """All labels of a program were wrong, and the right documents were missing."""
    rows = [(query, "wrong", "wrong") for query in QUERIES] + [(query, "right", "missing") for query in QUERIES]
    columns = ("query_id", "doc_id", "decision")
    return write_table(path, [dict(zip(columns, row, strict=True)) | {"split": "test"} for row in rows])


def test_the_first_sentence_says_which_run_is_better(folder, run_opera):
    first, second = add(folder, "run", BAD), add(folder, "run2", GOOD, seed=1, learning_rate=0.5)
    comparison = compare_runs([first, second])
    test = comparison.rows[1].difference
    assert test.difference == pytest.approx((ndcg(GOOD) - ndcg(BAD)) / 100)
    (sentence,) = comparison.sentences
    assert sentence == (
        f"run2 is better than run: nDCG@10 {ndcg(GOOD):.1f} against {ndcg(BAD):.1f} "
        f"(+{ndcg(GOOD) - ndcg(BAD):.1f}, 95% interval {test.interval_in_points}) on 24 test queries"
    )
    assert [row.method for row in comparison.rows] == ["ft", "ft:learning_rate=0.5:seed=1"]
    page = opera.report([first, second])
    assert page == second / "report.html"
    assert 0 < page.read_text().index(f"<p>{sentence}.</p>") < page.read_text().index("<svg")
    assert run_opera("report", first, second, "--fail-if-worse").stdout.startswith(f"{sentence}.\n")
    record = json.loads(run_opera("report", second, first, "--json", "--fail-if-worse", status=3).stdout)
    assert record["sentences"][0].startswith("run is worse than run2: ")
    assert record["rows"][1]["run"] == str(first)


def test_each_of_several_runs_is_compared_with_the_first(folder):
    runs = [add(folder, name, ranks, seed=seed) for seed, (name, ranks) in enumerate(
        {"a": BAD, "b": GOOD, "c": [3, 2, 9]}.items())]  # fmt: skip
    better, same = compare_runs(runs).sentences
    assert better.startswith("b is better than a: ")
    assert same.startswith("c is not measurably different from a: ")


def test_runs_in_folders_of_one_name_go_by_what_differs(folder):
    runs = [add(folder, "run", BAD), add(folder, "run2", GOOD, method="dp")]
    moved = [shutil.move(run, folder.home / str(number) / "run") for number, run in enumerate(runs)]
    assert [row.name for row in compare_runs(list(map(Path, moved))).rows] == ["ft", "dp"]


def test_runs_are_compared_where_their_labels_are_the_same(folder):
    first, second = add(folder, "run", BAD), add(folder, "run2", GOOD)
    table = opera.Run(second).per_query()
    labels = [["wrong"]] * 4 + table["relevant"].to_pylist()[4:]
    names = [*table.column_names]
    columns = {**{name: table[name] for name in names}, "relevant": labels}
    RunWriter(second).write_table(PER_QUERY_FILE, columns)
    comparison = compare_runs([first, second])
    assert (comparison.queries, comparison.all_queries) == (20, 24)
    assert comparison.sentences[0].endswith(" on 20 of 24 test queries, the only ones with the same labels in all runs")
    RunWriter(second).write_table(PER_QUERY_FILE, {**columns, "query_id": [f"other {query}" for query in QUERIES]})
    with pytest.raises(
        DataError, match=r"run2: share 0 test queries with the same texts and labels, too few to compare"
    ):
        compare_runs([first, second])


def with_hashes(run: Path, queries: Sequence[int], document: int) -> None:
    """Give a run hashes of the texts of its test queries, and of the one document that is relevant to all."""
    table = opera.Run(run).per_query()
    columns = {name: table[name] for name in table.column_names}
    hashes = {"query_hash": queries, "relevant_hashes": [[document]] * len(queries)}
    RunWriter(run).write_table(PER_QUERY_FILE, {**columns, **hashes})


def test_runs_on_two_exports_are_compared_by_text(folder, tmp_path):
    """Row numbers are the ids: the second export has another order, and two new questions."""
    first, second = add(folder, "run", BAD), add(folder, "run2", GOOD)
    texts = list(range(24))
    with_hashes(first, texts, 7)
    with_hashes(second, [90, 91, *texts[:22]], 7)
    comparison = compare_runs([first, second])
    assert (comparison.queries, comparison.all_queries) == (22, 26)
    assert comparison.rows[0].final["nDCG@10"] == pytest.approx(ndcg(np.resize(BAD, 24)[:22]) / 100)
    assert comparison.rows[1].final["nDCG@10"] == pytest.approx(ndcg(np.resize(GOOD, 24)[2:]) / 100)
    with pytest.raises(DataError, match=r"id 'q0' has another text in .*run; decisions about test labels fit only"):
        compare_runs([first, second], [decisions(tmp_path / "test.csv")])
    with_hashes(second, texts, 8)
    with pytest.raises(DataError, match="share 0 test queries with the same texts and labels"):
        compare_runs([first, second])


def test_runs_before_and_after_a_review_are_measured_on_the_same_corrected_labels(folder, tmp_path):
    """The first run was measured with wrong labels, the second with labels that are right already."""
    first = add(folder, "run", BAD, "wrong")
    second = add(folder, "run2", GOOD, "right", decisions=["d.csv"])
    with pytest.raises(DataError, match="share 0 test queries"):
        compare_runs([first, second])
    (sentence,) = compare_runs([first, second], [decisions(tmp_path / "test.csv")]).sentences
    assert sentence.startswith(
        f"run2 is better than run: nDCG@10 is {ndcg(GOOD):.1f} with your labels, and was {ndcg(BAD):.1f} before, on "
        "the same corrected test labels (+"
    )
    page = opera.report([first, second], tmp_path / "page.html", decisions=tmp_path / "test.csv").read_text()
    assert sentence in page


@pytest.mark.parametrize(
    ("settings", "words"), [({"decisions": ["d.csv"]}, "with your labels"), ({}, "after training")]
)
def test_a_run_with_corrected_test_labels_begins_with_their_result(folder, run_opera, tmp_path, settings, words):
    run = add(folder, "run", GOOD, "wrong", **settings)
    add(folder, "other", BAD, "wrong", method="dp", **settings)
    file, page = decisions(tmp_path / "test.csv"), tmp_path / "page.html"
    done = run_opera("report", folder.home, "--decisions", file, "--out", page)
    sentence = (
        f"ft: nDCG@10 is {ndcg(GOOD):.1f} {words}, and was 0.0 before training, on the same corrected test labels"
    )
    assert done.stdout.startswith(f"{sentence} (+")
    text = page.read_text()
    assert text.index(sentence) < text.index("<svg")
    assert run.is_dir()


def test_what_cannot_be_compared_is_refused(folder):
    run, other = add(folder, "run", BAD), folder.add(status="running")
    with pytest.raises(SettingError, match="run is given twice"):
        compare_runs([run, run])
    with pytest.raises(RunFolderError, match="not a run folder"):
        compare_runs([run, folder.home])
    with pytest.raises(RunFolderError, match="not finished"):
        compare_runs([run, other])
    with pytest.raises(SettingError, match="--baseline: several runs are compared with the first"):
        opera.report([run, other], baseline="ft")
    with pytest.raises(SettingError, match="folder: pass at least one"):
        opera.report([])
