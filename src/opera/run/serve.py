"""``opera show --serve``: the page of a run, and the answers to questions of its reader.

The server listens on this machine only, answers only GET, and writes nothing.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from opera.core.errors import InputError, ModelError, SettingError
from opera.core.page import page_of
from opera.data import Mixture
from opera.labels.review import Item, describe_document
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import TOP_DOCUMENTS
from opera.retrieval.locate import Model, locate_model
from opera.retrieval.nearest import exact_search
from opera.retrieval.prompts import ROLES
from opera.retrieval.search import best_passages, checked_query, keyword_index
from opera.retrieval.trust import download_model
from opera.run.show import LENGTHS, page_values, template
from opera.run_folder.folder import Run

HOST, PORT = "127.0.0.1", 8000
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Searches:
    """The base model, the final model and keyword search of a run, loaded to answer questions.

    Args:
        run: the run.
        texts: its data sets.
        base: the base model; ``None`` for the model that the run's record names.

    Raises:
        ModelError: if the base model is gone, or the run has no model that reads texts.
    """

    def __init__(self, run: Run, texts: Mixture, base: Model | None = None) -> None:
        self.texts = texts
        # the final model first: a run on vectors from files has no base model that reads texts
        self._final, self._base = open_encoder(run.path), open_base(run, base)
        corpus_text = run.settings["corpus_text"]
        self._documents = {
            encoder: [encoder.encode_corpus(part, corpus_text) for part in texts.data_sets]
            for encoder in (self._base, self._final)
        }
        has_words = "bm25" in run.measures
        self._words = [keyword_index(run.path, part) for part in texts.data_sets if has_words]
        self._lock = Lock()  # a model answers one question at a time

    def find(self, question: str, number: int) -> dict[str, list[Item]]:
        """Return the best documents of each search.

        Args:
            question: the text of the question.
            number: the number of the data set.
        """
        data_set, query = self.texts.data_sets[number], checked_query(question)
        with self._lock:
            answers = {"base": self._rank(self._base, number, query)}
            answers["final"] = self._rank(self._final, number, query)
            if self._words:
                doc_rows = self._words[number].search([query], TOP_DOCUMENTS).doc_rows[0]
                answers["bm25"] = [
                    describe_document(data_set, doc_row, LENGTHS[0])
                    for doc_row in doc_rows[doc_rows >= 0].tolist()
                ]
        return answers

    def _rank(self, encoder: Encoder, number: int, query: str) -> list[Item]:
        """Describe a model's best documents; a document split into passages by its best passage."""
        data_set, documents = self.texts.data_sets[number], self._documents[encoder][number]
        vectors = encoder.encode([query], "query")
        ranking = exact_search(encoder.nearest(vectors, data_set, TOP_DOCUMENTS), documents.rows)
        doc_rows = ranking.doc_rows[0][ranking.doc_rows[0] >= 0]
        passages = best_passages(encoder, data_set, documents, vectors, doc_rows)
        items = [describe_document(data_set, doc_row, LENGTHS[0]) for doc_row in doc_rows.tolist()]
        for item, passage in zip(items, passages, strict=True):
            item["document"] = item["document"] if passage is None else passage
        return items


def open_base(run: Run, base: Model | None) -> Encoder:
    """Load the base model of a run, as the run measured it; nothing is downloaded for a name in a
    run's record.
    """
    name = run.record.model.source if base is None else base
    try:
        located = locate_model(name)
        if base is None and isinstance(located, str):
            name = download_model(located, "sentence-transformers", cached=True)
    except (ModelError, OSError, ValueError) as error:
        # huggingface_hub would advise to check the network
        problem = error if isinstance(error, ModelError) else f"{name}: has not been downloaded"
        raise ModelError(
            f"{problem}; it is the base model of {run.path}; pass the model with --base"
        ) from None
    has_new_head = run.record.model.head_of is not None
    kind = None if has_new_head else run.settings.get("kind")
    encoder = open_encoder(name, passages=run.settings.get("passages") or 0, kind=kind)
    for role in ROLES:
        encoder.prompts[role] = encoder.prompts[role] or run.settings.get(f"{role}_prompt") or ""
    return encoder


class PageServer(ThreadingTCPServer):
    """Serves the page of a run, and answers questions.

    Args:
        run: the run.
        searches: its models.
        port: the port; ``None`` for 8000, or a free port if another program uses 8000.

    Raises:
        SettingError: if another program uses the port.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self, run: Run, searches: Searches, port: int | None = None) -> None:
        values = {**page_values(run, searches.texts), "serves": True}
        self.page, self.searches = page_of(template("'self'"), values), searches
        try:
            super().__init__((HOST, PORT if port is None else port), PageHandler)
        except OSError as error:
            if port is not None:
                raise SettingError(f"--port {port}: {error.strerror}; pass another port") from None
            super().__init__((HOST, 0), PageHandler)
        self.port = int(self.server_address[1])
        self.url = f"http://{HOST}:{self.port}/"

    def answer(self, query: str) -> dict[str, Any]:
        """Answer the question in the query part of an address."""
        values = parse_qs(query)
        number = values.get("set", ["0"])[0]
        if number not in map(str, range(len(self.searches.texts.data_sets))):
            raise SettingError("set: is not the number of a data set")
        return self.searches.find(values.get("q", [""])[0], int(number))


class PageHandler(BaseHTTPRequestHandler):
    """Answers GET for the page and for searches."""

    server: PageServer
    timeout = 60

    def do_GET(self) -> None:
        """Send the page, or the answer to a question.

        A page of another site can name this address as its own (DNS rebinding). Then the browser
        sends the name of the other site as the host.
        """
        url, port = urlsplit(self.path), self.server.port
        if self.headers.get_all("Host") not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
            self.send_error(403, f"open {self.server.url} instead")
        elif url.path == "/":
            self._send(200, "text/html", self.server.page)
        elif url.path == "/search":
            try:
                status, answer = 200, self.server.answer(url.query)
            except InputError as error:
                status, answer = 400, {"error": str(error)}
            self._send(status, "application/json", json.dumps(answer).encode())
        else:
            self.send_error(404)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Print nothing about a request."""
