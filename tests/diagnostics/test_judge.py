"""``opera review --judge``: a cross-encoder or a language model suggests decisions, and only a person decides."""

import csv
import io
import json
import logging
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from backbones import write_reranker
from opera.diagnostics import language_model
from opera.diagnostics.judge import score_thresholds
from opera.retrieval.reranker import open_reranker
from tiny_world import write_noisy_beir

KEY = "sk-secret-7c1f"
HOSTILE = "</script><script>alert(1)</script>"
Reply = Callable[[dict[str, Any], int], Any]
"""From the body of a request and its number: the text of the answer, or a status, or a body in bytes."""


@pytest.fixture(scope="module")
def trained_run(static_model, tmp_path_factory) -> opera.Run:
    """A run on pairs 40% of which are random."""
    folder = write_noisy_beir(tmp_path_factory.mktemp("judge") / "data", wrong_grade=1)
    settings = {"per_device_train_batch_size": 32, "max_steps": 60, "learning_rate": 0.1}
    return opera.adapt(folder, model=static_model, out=folder.parent / "run", **settings)


@pytest.fixture
def run(trained_run, tmp_path) -> opera.Run:
    return opera.Run(shutil.copytree(trained_run.path, tmp_path / "run"))


def data_of(page: Path) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert match
    return dict(json.loads(match[1]))


def judged(page: Path) -> dict[str, str | None]:
    return {item["id"]: item["judge"] for item in data_of(page)["items"] if item["list"] != "changed"}


class Endpoint(ThreadingHTTPServer):
    """Speaks OpenAI's protocol on this machine; ``reply`` decides what it answers."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply, self.requests, self.lock = reply, [], threading.Lock()
        self.stopped = threading.Event()
        self.pairs: list[dict[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.path, self.headers["Authorization"]))
            self.server.pairs.append(json.loads(body["messages"][-1]["content"]))
            number = len(self.server.requests)
        reply = self.server.reply(body, number)
        status, headers = 200, {"Content-Type": "application/json"}
        if isinstance(reply, int):
            status, content = reply, json.dumps({"error": {"message": f"no; your key is {KEY}"}}).encode()
            headers |= {"Retry-After": "0.01", "Location": f"http://127.0.0.1:{self.server.server_port}/other"}
        elif isinstance(reply, bytes):
            content = reply
        else:
            message = {"role": "assistant", "content": reply}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            values = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            content = json.dumps(values).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(BrokenPipeError):  # the client has given up
            self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        """Keep standard error clean."""


@pytest.fixture
def serve(monkeypatch) -> Iterator[Callable[[Reply], Endpoint]]:
    """Start an endpoint, and point the environment to it."""
    pytest.importorskip("openai", reason="pip install openai")
    endpoints = []

    def start(reply: Reply) -> Endpoint:
        endpoint = Endpoint(reply)
        endpoints.append(endpoint)
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{endpoint.server_port}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return endpoint

    yield start
    for endpoint in endpoints:
        endpoint.stopped.set()
        endpoint.shutdown()
        endpoint.server_close()


def test_thresholds_separate_what_training_trusts_from_what_it_doubts():
    trusted, doubted = np.arange(0.0, 101), np.arange(-50.0, 51)
    assert score_thresholds(trusted, doubted) == (10, 40)  # a tenth of each is on the wrong side
    assert score_thresholds(trusted + 200, doubted) == (40, 210)  # the gap between both groups gets no opinion


@pytest.fixture(scope="module")
def reranker(tmp_path_factory) -> Path:
    return write_reranker(tmp_path_factory.mktemp("reranker") / "model")


def test_a_cross_encoder_judges_by_its_scores(run, reranker, tmp_path, caplog):
    items = [item for item in data_of(opera.review(run))["items"] if item["list"] != "changed"]
    loaded = open_reranker(reranker)
    scores = loaded.score([item["query"] for item in items], [item["document"] for item in items])
    low, high = np.quantile(scores, [0.3, 0.6]).astype(float).tolist()
    page = opera.review(run, judge=reranker, judge_thresholds=(low, high))
    opinions = judged(page)
    # Pairs are padded with other pairs than here: a score may differ in its last digits.
    sure = np.abs(scores[:, None] - [low, high]).min(axis=1) > 1e-4
    for item, score, is_sure in zip(items, scores, sure, strict=True):
        correct = "missing" if item["list"] == "missing" else "correct"
        expected = "wrong" if score <= low else correct if score >= high else None
        assert not is_sure or opinions[item["id"]] == expected
    assert {"wrong", "correct", None} <= set(opinions.values())
    with caplog.at_level(logging.INFO, "opera"):
        opera.review(run, judge=str(reranker), judge_thresholds=f"{low}:{high}")
    assert f"a score up to {low:.4g} means wrong, from {high:.4g} correct" in caplog.text
    table = opera.review(run, tmp_path / "review.csv")  # without asking again
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["judge"] or None for row in rows] == list(opinions.values())
    assert {row["decision"] for row in rows} == {""}


def test_thresholds_come_from_the_pairs_of_training(run, reranker, monkeypatch, caplog):
    """A cross-encoder that knows the labels."""
    from opera.retrieval.reranker import Reranker

    columns = (run.pairs()[name].to_pylist() for name in ("query_id", "doc_id", "probability_wrong"))
    wrong = {(query, document): probability for query, document, probability in zip(*columns, strict=True)}
    items = run.review()["train"]["pairs"]
    scores = {
        (item["query"], item["document"]): (-3 if (wrong[item["query_id"], item["doc_id"]] or 0) > 0.5 else 3)
        + number / len(items)
        for number, item in enumerate(items)
    }
    monkeypatch.setattr(
        Reranker,
        "score",
        lambda _, queries, documents: np.array(
            [scores.get(pair, 0) for pair in zip(queries, documents, strict=True)], dtype=np.float32
        ),
    )
    with caplog.at_level(logging.INFO, "opera"):
        page = opera.review(run, judge=reranker)
    low, high = map(float, re.findall(r"up to (\S+) means wrong, from (\S+) correct", caplog.text)[0])
    assert -3 <= low <= -2 < 3 <= high <= 4
    opinions = judged(page)
    for item in data_of(page)["items"]:
        if item["list"] == "pairs":
            score = scores[item["query"], item["document"]]
            assert opinions[item["id"]] in ("wrong" if score < 0 else "correct", None)
    assert len({"wrong", "correct"} & set(opinions.values())) == 2
    scores = {pair: -score for pair, score in scores.items()}
    with pytest.raises(opera.ModelError, match="no higher than pairs that it doubts"):
        opera.review(run, judge=reranker)
    monkeypatch.setattr("opera.diagnostics.judge.FEWEST", 10_000)
    with pytest.raises(opera.SettingError, match="pass --judge-thresholds LOW:HIGH"):
        opera.review(run, judge=reranker)


def by_length(body: dict[str, Any], number: int) -> str:
    pair = json.loads(body["messages"][-1]["content"])
    return (" Wrong.\n", "correct", "unsure", HOSTILE)[len(pair["document"]) % 4]


def test_a_language_model_judges_once_and_only_the_page_shows_it(run, serve, run_opera, tmp_path, caplog):
    endpoint = serve(by_length)
    caplog.set_level(logging.INFO, "opera")
    done = run_opera("review", run.path, "--judge", "openai:m", "--yes", "--json")
    host = f"http://127.0.0.1:{endpoint.server_port}"
    page = run.path / "review.html"
    items = {item["id"]: item for item in data_of(page)["items"] if item["list"] != "changed"}
    assert done.stderr.startswith(f"{host}: gets {2 * len(items)} texts from this machine")
    assert {(pair["query"], pair["document"]) for pair in endpoint.pairs} == {
        (item["query"], item["document"]) for item in items.values()
    }
    assert set(endpoint.requests) == {("/v1/chat/completions", f"Bearer {KEY}")}
    for item in items.values():
        correct = "missing" if item["list"] == "missing" else "correct"
        assert item["judge"] == ("wrong", correct, None, None)[len(item["document"]) % 4]
    counts = {name: sum(item["judge"] == name for item in items.values()) for name in ("wrong", "correct", "missing")}
    values = json.loads(done.stdout)["judge"]
    assert values["name"] == f"openai:m at {host}" == data_of(page)["judge"]
    assert (values["wrong"], values["correct"]) == (counts["wrong"], counts["correct"] + counts["missing"])
    nonsense = [item for item in items.values() if len(item["document"]) % 4 == 3]
    assert f"({len(nonsense)} of them because the answer was" in caplog.text
    asked = len(endpoint.requests)
    before = page.read_bytes()
    run_opera("review", run.path)
    assert page.read_bytes() == before
    assert len(endpoint.requests) == asked
    endpoint.reply = lambda body, number: "wrong"
    run_opera("review", run.path, "--judge", "openai:m", "--yes")
    assert len(endpoint.requests) == asked + len(nonsense), "only pairs without an answer are asked about again"
    run_opera("review", run.path, "--judge", "openai:m", "--split", "test", "--yes", "--judge-pairs", 3)
    assert len(endpoint.requests) == asked + len(nonsense) + 3
    assert run.judge("train") is not None, "the opinions about the other split stay"
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not any(secret in written for secret in (KEY.encode(), b"Bearer", b"Authorization"))
    assert KEY not in done.stdout + done.stderr + caplog.text


def test_an_endpoint_that_fails_now_and_then_is_asked_again(run, serve):
    endpoint = serve(lambda body, number: (500, "correct", 429, "wrong")[number % 4])
    page = opera.review(run, judge="openai:m", judge_pairs=8, yes=True)
    assert sum(judge is not None for judge in judged(page).values()) == 8
    assert len(endpoint.requests) > 8


def test_answers_that_are_paid_for_outlive_an_error(run, serve, monkeypatch):
    monkeypatch.setattr(language_model, "RETRIES", 0)
    monkeypatch.setattr(language_model, "AT_ONCE", 1)
    endpoint = serve(lambda body, number: "wrong" if number <= 5 else 503)
    with pytest.raises(opera.OperaError, match="repeat the command") as caught:
        opera.review(run, judge="openai:m", yes=True)
    assert not isinstance(caught.value, opera.InputError)
    assert KEY not in str(caught.value)
    saved = run.judge("train")
    assert saved is not None
    assert list(saved.opinions.values()) == ["wrong"] * 5
    endpoint.reply = lambda body, number: "correct"
    opinions = judged(opera.review(run, judge="openai:m", yes=True))
    assert list(opinions.values()).count("wrong") == 5


@pytest.mark.parametrize("status", [401, 404, 307])
def test_an_endpoint_that_refuses_is_not_asked_again_and_no_redirect_is_followed(run, serve, status):
    (run.path / "judge.json").write_text('{"train": {"judge": "another", "opinions": {"pairs a b": "wrong"}}}')
    saved = run.judge("train")
    endpoint = serve(lambda body, number: status)
    with pytest.raises(opera.ModelError, match="openai:m at http") as caught:
        opera.review(run, judge="openai:m", judge_pairs=1, yes=True)
    assert len(endpoint.requests) == 1
    assert run.judge("train") == saved, "the opinions of another judge stay until there are new ones"
    assert KEY not in str(caught.value)


def test_an_endpoint_that_never_answers_ends_in_one_message(run, serve, monkeypatch):
    monkeypatch.setattr(language_model, "RETRIES", 0)
    monkeypatch.setattr(language_model, "TIMEOUT", 0.2)
    endpoint = serve(lambda body, number: str(endpoint.stopped.wait()))
    with pytest.raises(opera.OperaError, match="timed out"):
        opera.review(run, judge="openai:m", judge_pairs=2, yes=True)
    endpoint.stopped.set()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"message": {}}]}'])
def test_an_answer_that_breaks_the_protocol_is_no_opinion(run, serve, body):
    serve(lambda *_: body)
    page = opera.review(run, judge="openai:m", judge_pairs=2, yes=True)
    assert set(judged(page).values()) == {None}


def test_texts_leave_only_after_a_yes(run, serve, monkeypatch, capsys):
    endpoint = serve(lambda body, number: "wrong")
    with pytest.raises(opera.SettingError, match="pass --yes"):
        opera.review(run, judge="openai:m")
    for answer in ("", "\n", "n\n", "y\n"):
        assert endpoint.requests == []
        terminal = io.StringIO(answer)
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", terminal)
        if answer == "y\n":
            opera.review(run, judge="openai:m", judge_pairs=4)
        else:
            with pytest.raises(opera.SettingError, match="sent nothing"):
                opera.review(run, judge="openai:m")
    assert len(endpoint.requests) == 4
    assert "Send these texts? [y/N]" in capsys.readouterr().err


def test_what_is_missing_is_said_before_anything_is_sent(run, serve, monkeypatch):
    endpoint = serve(lambda *_: "wrong")
    for variable, value, message in (
        ("OPENAI_BASE_URL", "nowhere", "OPENAI_BASE_URL: must be an address"),
        ("OPENAI_BASE_URL", "http://user:password@host:port/v1", "OPENAI_BASE_URL: must be an address"),
        ("OPENAI_API_KEY", None, "set the variable OPENAI_API_KEY"),
    ):
        with monkeypatch.context() as patch:
            patch.delenv(variable) if value is None else patch.setenv(variable, value)
            with pytest.raises(opera.SettingError, match=message) as caught:
                opera.review(run, judge="openai:m", yes=True)
        assert "password" not in str(caught.value)
    with pytest.raises(opera.SettingError, match="a language model has no scores"):
        opera.review(run, judge="openai:m", judge_thresholds="0:1", yes=True)
    assert endpoint.requests == []
    (run.path / "judge.json").write_text('{"train": {"judge": "m", "opinions": {"pairs a b": "<b>"}}}')
    with pytest.raises(opera.RunFolderError, match=r"judge\.json: is damaged"):
        opera.review(run)


@contextmanager
def browser_page(file: Path) -> Iterator[Any]:
    """A page in Chromium; no script of the data may run, and none may fail."""
    browsers = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    with browsers.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page, failures = browser.new_context(accept_downloads=True).new_page(), []
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("dialog", lambda dialog: failures.append("a script of the data ran"))
        page.goto(file.as_uri())
        yield page
        browser.close()
    assert failures == []


@pytest.mark.slow
def test_a_person_accepts_suggestions_alone_or_all_at_once(run, serve, tmp_path):
    serve(by_length)
    file = opera.review(run, judge=f"openai:{HOSTILE}", yes=True)
    items = [item for item in data_of(file)["items"] if item["list"] == "pairs"]
    with browser_page(file) as page:
        assert HOSTILE in page.inner_text("#judge")
        decided = []
        for item in items[:12]:  # decisions of a person, who always says wrong
            assert page.locator(".suggestion").count() == 0, "a suggestion is not shown before the decision"
            page.keyboard.press("x")
            decided.append(item)
        unaided = [item for item in decided if item["judge"]]
        agreed = sum(item["judge"] == "wrong" for item in unaided)
        assert f"on {agreed} of {len(unaided)} items" in page.inner_text("#judge")
        assert page.inner_text("#accept").startswith(f"Accept all {suggestions(items[12:])} suggestions: ")
        number = next(number for number, item in enumerate(items) if number >= 12 and item["judge"] == "correct")
        for _ in range(12, number):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("a")
        assert page.inner_text(".suggestion") == "The judge says: Correct"
        page.keyboard.press("a")
        assert f"on {agreed} of {len(unaided)} items" in page.inner_text("#judge"), "an accepted one does not count"
        estimate = page.inner_text("#estimate")
        page.click("#accept")
        assert page.inner_text("#estimate") == estimate, "suggestions do not enter the estimate"
        page.keyboard.press("z")
        assert page.locator("#accept").count() == 1
        page.click("#accept")
        page.reload()
        open_items = [item for item in items[12:] if not item["judge"]]
        left = [number for number, item in enumerate(items) if item in open_items]
        for _ in range(len(items)):
            page.keyboard.press("ArrowLeft")
        for _ in range(left[0]):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("c")
        assert page.inner_text("#estimate") == estimate, "what the judge left over is no random sample"
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "decisions.csv")
    with (tmp_path / "decisions.csv").open(newline="") as stream:
        decisions = {(row["query_id"], row["doc_id"]): row["decision"] for row in csv.DictReader(stream)}
    expected = {(item["query_id"], item["doc_id"]): item["judge"] for item in items if item["judge"]}
    expected |= {(item["query_id"], item["doc_id"]): "wrong" for item in decided}
    expected[items[left[0]]["query_id"], items[left[0]]["doc_id"]] = "correct"
    assert decisions == expected


@pytest.mark.slow
def test_a_suggestion_about_a_document_without_a_label_adds_it_or_not(run, tmp_path):
    items = [item for item in data_of(opera.review(run, split="test"))["items"] if item["list"] == "missing"]
    opinions = dict(zip((item["id"] for item in items), ("correct", "wrong"), strict=False))
    record = {"test": {"judge": "m", "opinions": opinions}}
    (run.path / "judge.json").write_text(json.dumps(record))
    with browser_page(opera.review(run, split="test")) as page:
        page.click("text=Missing labels")
        assert page.inner_text("#accept") == "Accept all 2 suggestions: 1 × Does not answer, 1 × Answers the query"
        page.click("#accept")
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "decisions.csv")
    with (tmp_path / "decisions.csv").open(newline="") as stream:
        decisions = {(row["query_id"], row["doc_id"]): row["decision"] for row in csv.DictReader(stream)}
    assert decisions == {
        (item["query_id"], item["doc_id"]): name for item, name in zip(items, ("missing", "wrong"), strict=False)
    }


def suggestions(items: list[dict[str, Any]]) -> int:
    return sum(item["judge"] is not None for item in items)
