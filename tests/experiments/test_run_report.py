"""The report of a single run, and of its test labels as decisions correct them."""

import html
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import opera
from opera.data.mixture import ListOptions
from opera.experiments.corrected import CORRECTED, CorrectedTest, correct_test
from opera.experiments.groups import find_runs, group_runs
from tiny_world import write_beir, write_table

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Test labels with grades 1 and 2; the queries hold HTML."""
    folder = write_beir(tmp_path_factory.mktemp("report") / "data", n_train=100, n_test=30, dev=True)
    queries = folder / "queries.jsonl"
    queries.write_text(queries.read_text().replace('"text": "', f'"text": "{HOSTILE} '))
    return folder


@pytest.fixture(scope="module")
def run(data, static_model) -> opera.Run:
    settings = {"per_device_train_batch_size": 16, "max_steps": 40, "learning_rate": 0.1}
    return opera.adapt(data, model=static_model, out=data.parent / "run", eval_steps=10, **settings)


@pytest.fixture(scope="module")
def decided(run) -> list[dict[str, str]]:
    """Decisions about test: all labels of the first query are wrong, some others too, and some are missing."""
    table = run.per_query()
    labels = dict(zip(table["query_id"].to_pylist(), table["relevant"].to_pylist(), strict=True))
    first, second, third, *_ = labels
    ranking = table["final documents"].to_pylist()[1]
    missing = next(document for document in ranking if document not in labels[second])
    rows = [(first, document, "wrong") for document in labels[first]]
    rows += [(second, labels[second][0], "wrong"), (second, missing, "missing"), (third, labels[third][0], "correct")]
    columns = ("query_id", "doc_id", "decision")
    return [dict(zip(columns, row, strict=True)) | {"split": "test"} for row in rows]


def corrected(run: opera.Run, file: Path) -> CorrectedTest:
    return correct_test(group_runs(find_runs(run.path)[0]), [file])


def test_it_shows_the_verdict_every_query_and_examples(run):
    page = opera.report(run.path).read_text()
    changes = run.review()["changed"]
    count = "{gained} gained, {lost} lost, {same} unchanged".format(**changes)
    assert f"<td>{100 * run.measures['final']['R@20']:.1f}</td>" in page
    assert 0 < page.index("The final model") < page.index(f"nDCG@10 of each test query: {count}")
    examples = re.findall(r'<details class="example".*?</details>', page, re.DOTALL)
    queries = [query for name in ("gains", "losses") for query in changes[name][:3]]
    for example, query in zip(examples, queries, strict=True):
        assert f"{100 * query['base']:.1f} → {100 * query['final']:.1f}" in example
        assert html.escape(query["query"][:60]) in example
        assert example.count("<li") == len(query["base_documents"]) + len(query["final_documents"])
        assert example.count('class="labelled"') == sum(
            document["labelled"] for name in ("base_documents", "final_documents") for document in query[name]
        )
    assert "<script" not in page


def test_it_links_to_the_page_of_searches_or_names_the_command(run, tmp_path):
    copy = shutil.copytree(run.path, tmp_path / "a run")
    assert f"<code>opera show &#39;{copy}&#39;</code>" in opera.report(copy).read_text()
    opera.show(copy)
    assert '<a href="show.html">show.html</a>' in opera.report(copy).read_text()
    elsewhere = opera.report(copy, tmp_path / "report.html").read_text()
    assert '<a href="a%20run/show.html">a%20run/show.html</a>' in elsewhere


def test_figures_with_corrected_labels_are_those_of_corrected_data(run, data, decided, tmp_path):
    file = write_table(tmp_path / "decisions.csv", decided)
    result = corrected(run, file)
    changed = shutil.copytree(data, tmp_path / "changed")
    qrels = changed / "qrels" / "test.tsv"
    head, *lines = qrels.read_text().splitlines()
    wrong, missing = (
        {(row["query_id"], row["doc_id"]) for row in decided if row["decision"] == decision}
        for decision in ("wrong", "missing")
    )
    lines = [line for line in lines if tuple(line.split("\t")[:2]) not in wrong]
    lines += [f"{query}\t{document}\t1" for query, document in missing]
    qrels.write_text("\n".join([head, *lines]) + "\n")
    measured = opera.evaluate(changed, model=run.model_path, measures=CORRECTED)
    labels_as_given, figures = result.figures
    assert labels_as_given.final == pytest.approx({name: run.measures["final"][name] for name in CORRECTED}, abs=1e-9)
    assert figures.queries == len(measured.query_ids) == run.per_query().num_rows - 1
    assert figures.final == pytest.approx(measured.measures, abs=1e-9)
    assert (result.removed, result.added, result.confirmed, result.left_out) == (len(wrong), 1, 1, 1)
    page = opera.report(run.path, tmp_path / "page.html", decisions=file).read_text()
    assert f"{100 * figures.base['nDCG@10']:.1f} → {100 * figures.final['nDCG@10']:.1f}" in page
    assert html.escape(result.sentence) in page


def test_runs_on_the_same_test_queries_take_the_same_decisions(run, data, decided, static_model, tmp_path):
    file = write_table(tmp_path / "decisions.csv", decided)
    other = opera.adapt(data, model=static_model, out=tmp_path / "runs" / "ft", method="ft", max_steps=2, guard=False)
    alone = corrected(other, file)
    assert alone.figures[1].base == corrected(run, file).figures[1].base
    shutil.copytree(run.path, tmp_path / "runs" / "first")
    both = correct_test(group_runs(find_runs(tmp_path / "runs")[0]), [file])
    assert {figures.final["nDCG@10"] for figures in both.figures} > {f.final["nDCG@10"] for f in alone.figures}
    pq.write_table(run.per_query().slice(1), other.path / "per_query.parquet")
    with pytest.raises(opera.DataError, match="its test labels differ"):
        correct_test(group_runs(find_runs(tmp_path / "runs")[0]), [file])


def test_ids_that_a_spreadsheet_changed_are_refused(run, decided, tmp_path):
    """They would become relevant documents that no model can rank."""
    rows = [*decided, {**decided[-1], "doc_id": "1"}, {**decided[0], "query_id": "1", "split": "train"}]
    with pytest.raises(opera.DataError, match=f"{len(decided)} of {len(decided) + 1} decisions match"):
        opera.report(run.path, tmp_path / "page.html", decisions=write_table(tmp_path / "decisions.csv", rows))
    assert not (tmp_path / "page.html").exists()


def test_test_decisions_are_read_as_the_options_say(run, decided, tmp_path):
    wanted = corrected(run, write_table(tmp_path / "decisions.csv", decided)).figures
    rows = [{name.title().replace("_", " "): value for name, value in row.items()} for row in decided]
    text = write_table(tmp_path / "changed.csv", [*rows, {**rows[0], "Query Id": ""}]).read_text()
    (tmp_path / "changed.csv").write_text(text, encoding="utf-16")
    with pytest.raises(opera.DataError, match="--encoding"):
        corrected(run, tmp_path / "changed.csv")
    options = ListOptions.checked("utf-16", skip_bad_rows=True)
    result = correct_test(group_runs(find_runs(run.path)[0]), [tmp_path / "changed.csv"], options)
    assert result.figures == wanted
    assert f"left out 1 of {len(rows) + 1} rows" in result.sentence
