"""``opera.show``: a page with the searches of a run's test queries before and after training."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.config.arguments import checked_output
from opera.core.arguments import several
from opera.core.errors import DataError
from opera.core.figures import PRIMARY, SEARCHES, column
from opera.core.files import replace_file
from opera.core.page import page_of
from opera.data import Mixture, files_read, load_all
from opera.data.id_lists import cut
from opera.retrieval.locate import run_data
from opera.run_folder.folder import PER_QUERY_FILE, SHOW_FILE, Run
from opera.run_folder.reading import file_errors

MOST_QUERIES, MOST_BYTES = 500, 5_000_000
"""The limits of a page."""
LENGTHS = (2000, 600, 200)
"""Characters of each text. A page has the first length at which all of its queries fit, else the
last."""


def show(
    run: str | Path | Run,
    *,
    data: Any = None,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a page with the test queries of a run and their ten best documents before and after
    training.

    It shows the documents of the base model, of the final model and, if the run measured it, of
    keyword search. The page has at most 500 queries and 5 MB; the queries that changed most come
    first.

    Args:
        run: the folder of a finished run. Its model is not loaded.
        data: the data that the run trained on, if OPERA cannot read them from the run's record:
            data in memory, or from ``python:``, ``irds:``, ``hf:`` or a registered source. A list
            for a run on several data sets.
        out: the page to write; by default ``show.html`` in the run.
        overwrite: whether a file at ``out`` may be replaced.

    Returns:
        The path of the file.

    Raises:
        RunFolderError: if the folder holds no finished run.
        DataError: if the data are gone or have changed.

    Examples:
        >>> opera.show("my-run").name
        'show.html'
    """
    run = run if isinstance(run, Run) else Run.open(run)
    texts = run_texts(run, data)
    file = checked_output(out, (".html",), overwrite, texts, files_read(texts))
    file = run.path / SHOW_FILE if file is None else file
    page = page_of(template(), page_values(run, texts))
    replace_file(file, lambda temporary: temporary.write_bytes(page))
    return file


def run_texts(run: Run, data: Any = None) -> Mixture:
    """Load the texts that a finished run ranked.

    Args:
        run: the run.
        data: the data if the user passed them again, else ``None``.

    Raises:
        RunFolderError: if the run is not finished.
        DataError: if the data are gone, or are not those of the run.
    """
    run.check_finished()
    advice = "pass the data with --data"
    if data is None:
        texts = run_data(run.path, advice)
    else:
        texts = load_all(several(data, "data", "data sets") if run.record.sets else [data])
    if texts.joined.fingerprint != run.record.data.fingerprint:
        raise DataError(
            f"{texts.joined.title}: has other texts than those that {run.path} ranked; {advice} "
            "as the run read them, or train again"
        )
    return texts


def template(connects_to: str = "'none'") -> str:
    """Return the template of the page, which may ask no server, or the one that it came from."""
    text = files("opera.run").joinpath("show.html").read_text(encoding="utf-8")
    return text.replace("{{ connect }}", connects_to)


def page_values(run: Run, texts: Mixture) -> dict[str, Any]:
    """Describe a run and its test queries, the most changed first, within the limits of a page."""
    table = run.per_query()
    change = table[column("final", PRIMARY)].to_numpy() - table[column("base", PRIMARY)].to_numpy()
    order = np.argsort(-np.abs(change), kind="stable")[:MOST_QUERIES]
    with file_errors(run.path / PER_QUERY_FILE):
        queries = ShownQueries(table.take(order), texts)
    values = {
        "title": f"Searches before and after training: {texts.joined.name} in {run.path.name}",
        "headlines": run.headlines[:2],
        "sets": [] if texts.is_single else [data_set.name for data_set in texts.data_sets],
        "gained": int((change > 0).sum()),
        "lost": int((change < 0).sum()),
        "same": int((change == 0).sum()),
    }

    def size(length: int, count: int) -> int:
        return len(page_of(template(), values | queries.first(count, length)))

    for length in LENGTHS:
        count = bisect_right(range(1, len(order) + 1), MOST_BYTES, key=partial(size, length))
        if count == len(order):
            break
    return values | queries.first(count, length)


class ShownQueries:
    """Test queries with the ids of their best documents, and their texts.

    Args:
        table: rows of ``per_query.parquet``.
        texts: the data of the run.
    """

    def __init__(self, table: pa.Table, texts: Mixture) -> None:
        self.rows, data = table.to_pylist(), texts.joined
        self.searches = [
            name for name in SEARCHES if column(name, "documents") in table.schema.names
        ]
        query_rows = data.queries.find_rows([row["query_id"] for row in self.rows])
        ids = dict.fromkeys(chain.from_iterable(map(self.ranked, self.rows)))
        doc_rows = data.corpus.find_rows([*ids])
        if min(*query_rows, *doc_rows, 0) < 0:
            raise ValueError("has ids that are not in the data")
        self.queries = data.queries.texts(query_rows)
        self.documents = dict(zip(ids, data.corpus.texts(doc_rows), strict=True))
        self.sets = texts.sets_of_queries(query_rows).tolist()

    def ranked(self, row: dict[str, Any]) -> Iterable[str]:
        """Yield the ids of the documents of a query, some of them several times."""
        return chain.from_iterable(row[column(name, "documents")] for name in self.searches)

    def first(self, count: int, length: int) -> dict[str, Any]:
        """Describe the first queries; a document that several searches found is listed once."""
        rows = self.rows[:count]
        ids = dict.fromkeys(chain.from_iterable(map(self.ranked, rows)))
        position = {document: number for number, document in enumerate(ids)}
        return {
            "queries": [
                {
                    "id": row["query_id"],
                    "query": cut(text, length),
                    "set": data_set,
                    "relevant": len(row["relevant"]),
                    "labelled": [position[i] for i in {*row["relevant"]} & {*self.ranked(row)}],
                    "measures": {
                        name: round(row[column(name, PRIMARY)], 4) for name in self.searches
                    },
                    "documents": {
                        name: [position[i] for i in row[column(name, "documents")]]
                        for name in self.searches
                    },
                }
                for row, text, data_set in zip(rows, self.queries, self.sets, strict=False)
            ],
            "documents": [[i, cut(self.documents[i], length)] for i in ids],
        }
