"""``opera show``: the page of searches before and after training, its limits, and the server that answers questions."""

import json
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow.parquet as pq
import pytest

import opera
from opera.core.files import write_parquet
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model
from opera.run import show
from opera.run.serve import PageServer, Searches
from opera.run.show import run_texts
from opera.run_folder.folder import Run
from processes import start
from small_runs import FAST
from tiny_world import write_beir

HOSTILE = "</script><script>alert(1)</script>"
SETTINGS = {**FAST, "bm25": True}


@pytest.fixture(scope="module")
def run(static_model, tmp_path_factory) -> Run:
    """A run whose queries and documents hold HTML."""
    folder = write_beir(tmp_path_factory.mktemp("show") / "data")
    for name in ("queries.jsonl", "corpus.jsonl"):
        texts = folder / name
        texts.write_text(texts.read_text().replace('"text": "', f'"text": "{HOSTILE} '))
    return opera.adapt(folder, model=static_model, out=folder.parent / "run", **SETTINGS)


@pytest.fixture(scope="module")
def two_sets(static_model, tmp_path_factory, beir, second) -> Run:
    return opera.adapt(beir, also=[second], model=static_model, out=tmp_path_factory.mktemp("two") / "run", **SETTINGS)


def data_of(page: Path) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert match
    return dict(json.loads(match[1]))


def documents_of(data: dict[str, Any], query: dict[str, Any]) -> dict[str, list[str]]:
    """The ids of the documents of a query on a page."""
    return {name: [data["documents"][row][0] for row in rows] for name, rows in query["documents"].items()}


def stored(run: Run) -> dict[str, dict[str, list[str]]]:
    """The ids of the ten best documents of each query and search, as the run measured them."""
    table = run.per_query()
    lists = {name: table[f"{name} documents"].to_pylist() for name in ("base", "final", "bm25")}
    ids = table["query_id"].to_pylist()
    return {query: {name: lists[name][row] for name in lists} for row, query in enumerate(ids)}


def test_the_page_has_the_rankings_that_the_run_measured(run):
    page = opera.show(run.path)
    assert page == run.path / "show.html"
    data, table = data_of(page), run.per_query()
    assert {query["id"]: documents_of(data, query) for query in data["queries"]} == stored(run)
    relevant = dict(zip(table["query_id"].to_pylist(), table["relevant"].to_pylist(), strict=True))
    texts = opera.load_data(run.record.data.source)
    corpus = dict(zip(texts.corpus.ids(), texts.corpus.texts(), strict=True))
    assert dict(data["documents"]).items() <= corpus.items()
    for query in data["queries"]:
        found = {doc for documents in documents_of(data, query).values() for doc in documents}
        labelled = {data["documents"][row][0] for row in query["labelled"]}
        assert labelled == found & set(relevant[query["id"]])
        assert query["relevant"] == len(relevant[query["id"]])
    means = {
        name: np.mean([query["measures"][name] for query in data["queries"]]) for name in ("base", "final", "bm25")
    }
    assert means == pytest.approx({name: run.measures[name]["nDCG@10"] for name in means}, abs=1e-4)
    changes = [abs(query["measures"]["final"] - query["measures"]["base"]) for query in data["queries"]]
    assert changes == sorted(changes, reverse=True)
    assert data["gained"] + data["lost"] + data["same"] == table.num_rows
    assert data["headlines"] == run.headlines[:2]


def test_texts_stay_texts_and_the_page_asks_nobody(run):
    page = opera.show(run)
    assert HOSTILE not in page.read_text()
    assert HOSTILE in data_of(page)["queries"][0]["query"]
    assert "default-src 'none'; connect-src 'none'" in page.read_text()
    addresses = re.findall(r"(?:https?:)?//[\w.]+", page.read_text().replace("// ", ""))
    assert addresses == []


def test_a_run_of_an_earlier_version_has_no_column_of_keyword_search(run, tmp_path):
    old = shutil.copytree(run.path, tmp_path / "run")
    table = pq.read_table(old / "per_query.parquet")
    write_parquet(old / "per_query.parquet", [table.drop_columns("bm25 documents")])
    assert data_of(opera.show(old))["queries"][0]["documents"].keys() == {"base", "final"}


def test_a_page_keeps_its_limits_and_counts_what_it_leaves_out(run, tmp_path, monkeypatch):
    whole = data_of(opera.show(run))
    monkeypatch.setattr(show, "MOST_QUERIES", 7)
    few = data_of(opera.show(run, out=tmp_path / "few.html"))
    assert few["queries"] == whole["queries"][:7]
    assert few["gained"] + few["lost"] + few["same"] == len(whole["queries"])
    monkeypatch.setattr(show, "LENGTHS", (2000, 20))
    size = (tmp_path / "few.html").stat().st_size
    monkeypatch.setattr(show, "MOST_BYTES", size - 1)
    short = opera.show(run, out=tmp_path / "short.html")
    assert {len(text) for _, text in data_of(short)["documents"]} == {20 + len(" ...")} or short.stat().st_size < size
    assert len(data_of(short)["queries"]) == 7, "shorter texts before fewer queries"
    monkeypatch.setattr(show, "MOST_BYTES", short.stat().st_size - 1)
    fewer = opera.show(run, out=tmp_path / "fewer.html")
    assert fewer.stat().st_size < short.stat().st_size
    assert 0 < len(data_of(fewer)["queries"]) < 7


def test_several_data_sets_have_a_selector(two_sets):
    data = data_of(opera.show(two_sets))
    assert data["sets"] == ["topics", "second"]
    assert all(query["id"].startswith(f"{data['sets'][query['set']]}/") for query in data["queries"])
    assert {query["set"] for query in data["queries"]} == {0, 1}


def test_data_in_memory_are_passed_again(static_model, tmp_path):
    pairs = [(f"t{n % 12}w{n % 8} common1", f"t{n % 12}w{n % 8} common{n % 20} common2") for n in range(60)]
    run = opera.adapt(pairs, model=static_model, out=tmp_path / "run", max_steps=2, per_device_train_batch_size=8)
    with pytest.raises(opera.DataError, match=r"pass the data with --data"):
        opera.show(run)
    assert len(data_of(opera.show(run, data=pairs))["queries"]) == run.per_query().num_rows
    with pytest.raises(opera.DataError, match="has other texts than those that"):
        opera.show(run, data=pairs[:-1])


def test_decisions_do_not_change_the_texts(run, static_model, tmp_path):
    pair = run.pairs().slice(0, 1).to_pylist()[0]
    (tmp_path / "d.csv").write_text(f"query_id,doc_id,decision\n{pair['query_id']},{pair['doc_id']},wrong\n")
    settings = {**SETTINGS, "max_steps": 2}
    source = run.record.data.source
    again = opera.adapt(source, model=static_model, out=tmp_path / "run", decisions=tmp_path / "d.csv", **settings)
    assert len(data_of(opera.show(again))["queries"]) == 16


def test_a_run_on_vectors_has_a_page_but_answers_no_questions(beir, static_model, tmp_path):
    data, encoder = opera.load_data(beir), Encoder(load_model(static_model, "cpu"), use_cache=False)
    files = {}
    for kind, table in (("query", data.queries), ("document", data.corpus)):
        rows = np.arange(len(table))
        vectors = encoder.encode_queries(data, rows) if kind == "query" else encoder.encode_corpus(data).rows
        np.save(tmp_path / f"{kind}.npy", vectors)
        (tmp_path / f"{kind}.txt").write_text("".join(f"{identifier}\n" for identifier in table.ids()))
        files[f"{kind}_vectors"] = tmp_path / f"{kind}.npy"
    run = opera.adapt(beir, out=tmp_path / "run", **files, **{**SETTINGS, "max_steps": 2})
    assert len(data_of(opera.show(run))["queries"]) == 16
    with pytest.raises(opera.ModelError, match="holds an adapter of vectors from files"):
        Searches(run, run_texts(run))


@contextmanager
def served(run: Run) -> Iterator[tuple[PageServer, Callable[..., tuple[int, str]]]]:
    """Serve a run; ``get(path, host=..., method=...)`` returns the status and the body of an answer."""
    with PageServer(run, Searches(run, run_texts(run)), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def get(path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            body = response.read().decode()
            connection.close()
            return response.status, body

        try:
            yield server, get
        finally:
            server.shutdown()
            thread.join()


def answers(run: Run) -> dict[str, dict[str, list[str]]]:
    """The ids that a served run answers to the texts of its test queries."""
    texts, found = run_texts(run), {}
    starts = [first for first, _ in texts.first_rows]
    with served(run) as (_, get):
        for query_id in run.per_query()["query_id"].to_pylist():
            rows = texts.joined.queries.find_rows([query_id])
            number = int(np.searchsorted(starts, rows[0], side="right")) - 1
            prefix = "" if texts.is_single else f"{texts.data_sets[number].name}/"
            status, body = get(f"/search?q={quote(texts.joined.queries.texts(rows)[0])}&set={number}")
            assert status == 200
            lists = json.loads(body).items()
            found[query_id] = {name: [prefix + document["doc_id"] for document in ranked] for name, ranked in lists}
    return found


def test_a_question_gets_the_documents_that_the_run_measured(run, two_sets):
    for each in (run, two_sets):
        assert answers(each) == stored(each)


@pytest.mark.parametrize("settings", [{"adapter": "query"}, {"matryoshka": (8, 4)}, {"query_prompt": "t1w1 "}])
def test_adapters_cut_embeddings_and_prompts_answer_as_measured(train, settings):
    run = train(**SETTINGS, **settings)
    assert answers(run) == stored(run)


def test_the_server_answers_this_machine_only_and_only_get(run):
    with served(run) as (server, get):
        status, page = get("/")
        assert (status, "connect-src 'self'" in page, HOSTILE in page) == (200, True, False)
        here = f"127.0.0.1:{server.port}"
        assert server.server_address[0] == "127.0.0.1"
        hosts = {here: 200, f"localhost:{server.port}": 200, "127.0.0.1": 403, f"evil.example:{server.port}": 403}
        hosts[f"{here}.evil.example"] = hosts["evil.example"] = hosts[""] = 403
        assert {host: get("/", Host=host)[0] for host in hosts} == hosts
        assert get("/search?q=t1w1", Host="evil.example")[0] == 403
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            assert get("/", method)[0] == 501
        assert [get(path)[0] for path in ("/run.json", "/../run.json", "/search/", "/show.html")] == [404] * 4
        bad = ("q=", "", "q=%20", "q=t1&set=1", "q=t1&set=-1", "q=t1&set=x", "q=a%00b%ed%a0%80&set=9")
        assert [get(f"/search?{query}")[0] for query in bad] == [400] * len(bad)
        assert json.loads(get("/search?q=")[1]) == {"error": "query: must not be empty"}
        assert get(f"/search?q={'a' * 70_000}")[0] == 414
        assert get("/search?q=%ff%3Cscript%3E")[0] == 200


def test_a_port_that_is_taken_is_an_error_or_another_one(run, monkeypatch):
    with served(run) as (server, _):
        with pytest.raises(opera.SettingError, match=rf"^--port {server.port}: .*; pass another port$"):
            PageServer(run, server.searches, server.port)
        monkeypatch.setattr("opera.run.serve.PORT", server.port)
        with PageServer(run, server.searches) as other:
            assert other.port != server.port


def test_the_base_model_must_be_there_and_is_not_downloaded(run, static_model, tmp_path):
    moved = shutil.copytree(run.path, tmp_path / "run")
    record = json.loads((moved / "run.json").read_text())
    for name, reason in (
        ("/gone/model", "no such model folder"),
        ("owner/model", "owner/model: has not been downloaded"),
    ):
        record["model"]["source"] = name
        (moved / "run.json").write_text(json.dumps(record))
        copy = Run.open(moved)
        message = rf"{reason}.*; it is the base model of .*; pass the model with --base"
        with pytest.raises(opera.ModelError, match=message):
            Searches(copy, run_texts(copy))
    assert Searches(copy, run_texts(copy), static_model).find("t1w1", 0)["base"]


def test_the_command_serves_until_ctrl_c_and_writes_nothing(run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    words = ["-m", "opera", "show", str(run.path), "--serve", "--json"]
    child = start(words, tmp_path / "log", PYTHONUNBUFFERED="1")
    child.wait_until(lambda: "}" in child.log.read_text())
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", json.loads(child.log.read_text().partition("\n}")[0] + "}")["url"])
    child.send_signal(signal.SIGINT)
    assert child.wait() == 0
    assert child.log.read_text().endswith("opera: ended\n")
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


@pytest.mark.slow
def test_a_reader_filters_finds_opens_and_asks(two_sets, run, open_page):
    for width in (1280, 390):
        page = open_page(opera.show(run).as_uri(), width)
        data = data_of(run.path / "show.html")
        first = next(query for query in data["queries"] if query["measures"]["final"] > query["measures"]["base"])
        assert page.inner_text("details[open] summary .text") == first["query"]
        columns = page.locator("details[open] .columns > div")
        assert columns.count() == 3
        shown = [page.locator("li.labelled .label").all_inner_texts()]
        assert all("✓" in label for label in shown[0])
        text = columns.first.locator("button.text").first
        text.click()
        assert text.get_attribute("aria-expanded") == "true"
        page.click("text=All 16")
        assert page.locator("details").count() == 16
        page.fill("#find", data["queries"][3]["id"])
        assert page.inner_text("details .text") == data["queries"][3]["query"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page = open_page(opera.show(two_sets).as_uri())
    page.click("#filters button:last-child")
    page.select_option("#sets", label="second")
    assert page.locator("details").count() == two_sets.record.sets[1].counts["test_queries"]
    with served(two_sets) as (server, _):
        page = open_page(server.url)
        page.fill("#ask input", "t3w1 t3w2")
        page.select_option("#ask select", label="second")
        page.click("#ask form button")
        page.wait_for_selector("#ask .columns")
        assert page.locator("#ask .columns h2").all_inner_texts() == [
            "Base model", "Final model", "Keyword search (BM25)"
        ]  # fmt: skip
        page.fill("#ask input", " ")
        page.click("#ask form button")
        page.wait_for_selector("#ask .loss")
        assert page.inner_text("#ask .loss") == "query: must not be empty"
