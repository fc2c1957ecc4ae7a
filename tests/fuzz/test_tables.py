"""Tables with odd values: every format is loaded as the same data.

What is spoilt is read with every row accounted for, or refused with the file's name.
"""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from data.golden import dump
from fuzzing import few, json_lines, only_refusals, spoilt, workplace
from opera.core.errors import InputError
from opera.data import load_data

Row = dict[str, str]
PLAIN = ["first", "second", "third", "caf\u00e9 \U0001f600", "with \"quotes\" and 'marks'", "1", "a, b; c | d", "n 1"]
ODD = [
    "", " ", "\u00a0", "\u2003", "First", "first ", " first", "first  second", "1.0", "01", "-1", "0.5", "nan", "inf",
    "null", "true", "u\u2028s\u0085x\u001cy", "\ufefffirst", "\u200bfirst", "'", '"', '""', 'a"b', "\\", "#", "test",
    "TRAIN ", "dev", "d0", "q0", "query", "document", "1e39", "1001", "\x01",
]  # fmt: skip
MULTILINE = ["two\nlines", "cr\rlf\r\n", "a\tb"]
"""What TSV cannot hold."""
text = st.sampled_from(PLAIN)
FORMATS = ("csv", "tsv", "jsonl", "parquet")


@st.composite
def tables(draw: Callable[..., Any], odd: list[str]) -> list[Row]:
    """Pairs of texts with some of the other columns; up to three values are odd."""
    also = draw(st.sets(st.sampled_from(["title", "grade", "weight", "split", "negative", "ids"])))
    values = {
        "query": text, "document": text, "title": st.sampled_from(["", "of it"]), "negative": text,
        "grade": st.sampled_from("0123"), "weight": st.sampled_from(["0", "1", "2.5", "7"]),
        "split": st.sampled_from(["train", "train", "validation", "test"]),
    }  # fmt: skip
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        row = {name: draw(value) for name, value in values.items() if name in {"query", "document"} | also}
        if "ids" in also:
            row |= {f"{side}_id": f"i{PLAIN.index(row[side])}" for side in ("query", "document")}
        rows.append(row)
    for _ in range(draw(st.integers(0, 3))):
        row = draw(st.sampled_from(rows))
        row[draw(st.sampled_from(list(row)))] = draw(st.sampled_from(odd))
    return [row if any(map(str.strip, row.values())) else row | {"query": "first"} for row in rows]


def written(rows: list[Row], suffix: str, delimiter: str = ",", end: str = "\n") -> bytes:
    """The rows in a format."""
    if suffix == "jsonl":
        return json_lines(list(rows))
    if suffix == "parquet":
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), file)
        return file.getvalue()
    out = io.StringIO()
    if suffix == "tsv":
        return "".join("\t".join(row) + "\n" for row in [list(rows[0]), *(row.values() for row in rows)]).encode()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def outcome(name: str, content: bytes, **how: Any) -> dict[str, Any]:
    """What a file is loaded as, or the lines of the error; in a cache of its own."""
    with workplace({name: content}) as home:
        try:
            loaded = dump(load_data(home / name, **how))
        except InputError as error:
            loaded = {"error": list(error.lines)}
        return json.loads(json.dumps(loaded).replace(str(home), ""))


@few(10)
@given(tables(ODD))
def test_every_format_is_loaded_as_the_same(rows):
    loaded = {}
    for suffix in FORMATS:
        values = outcome(f"p.{suffix}", written(rows, suffix))
        loaded[suffix] = {name: value for name, value in values.items() if name not in ("name", "notes", "error")}
    event("refused" if not loaded["csv"] else "loaded")
    for suffix in FORMATS:
        assert loaded[suffix] == loaded["csv"], suffix


@few(20)
@given(tables(ODD + MULTILINE), st.sampled_from(",;|\t"), st.sampled_from(["\n", "\r\n"]))
def test_csv_in_every_dialect_is_loaded_as_json(rows, delimiter, end):
    loaded = [outcome("p.csv", written(rows, "csv", delimiter, end)), outcome("p.jsonl", written(rows, "jsonl"))]
    kept = [
        {name: value for name, value in values.items() if name not in ("name", "notes", "error")} for values in loaded
    ]
    event("loaded" if kept[0] else "refused")
    assert kept[0] == kept[1]


@pytest.mark.parametrize("suffix", FORMATS)
@few(8)
@given(tables(ODD), st.booleans(), st.data())
def test_a_spoilt_file_is_read_or_refused(suffix, rows, skip, data):
    content = data.draw(spoilt(written(rows, suffix)))
    named = lambda message: f"p.{suffix}" in message or "--columns" in message  # noqa: E731
    with workplace({f"p.{suffix}": content}) as folder, only_refusals(named):
        loaded = load_data(folder / f"p.{suffix}", skip_bad_rows=skip)
        assert all(query.strip() for query in loaded.queries.texts())
        assert loaded.counts()["documents"] == len(set(loaded.corpus.ids()))
        assert load_data(folder / f"p.{suffix}", skip_bad_rows=skip).fingerprint == loaded.fingerprint


TRAINERS = {
    "f.jsonl": [
        {"query": "one", "pos": ["a", "b"], "neg": ["c"], "pos_scores": [1, None], "neg_scores": [-1], "prompt": "p"},
        {"query": "two", "pos": ["c"], "neg": None},
    ],
    "t.jsonl": [
        {"query_id": "1", "query": "one", "positive_passages": [{"docid": "x", "title": "t", "text": "a"}],
         "negative_passages": [{"docid": 7, "text": "b"}]},
        {"query_id": "2", "query_text": "two", "positive_document_ids": ["x"], "negative_document_ids": []},
    ],
    "d.jsonl": [
        {"question": "one", "answers": ["a"], "positive_ctxs": [{"title": "t", "text": "a", "passage_id": "1"}],
         "negative_ctxs": [{"title": "", "text": "b", "psg_id": 2}], "hard_negative_ctxs": []},
        {"question": "two", "positive_ctxs": [{"text": "b", "passage_id": "2"}], "hard_negative_ctxs": [
            {"title": "t", "text": "a", "passage_id": "1"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINERS)
@few(10)
@given(st.data())
def test_a_spoilt_file_of_another_trainer_is_read_or_refused(name, data):
    records, as_list = list(TRAINERS[name]), data.draw(st.booleans())
    name = name.removesuffix("l") if as_list else name
    content = data.draw(spoilt(json.dumps(records, indent=4).encode() if as_list else json_lines(records)))
    with workplace({name: content}) as folder, only_refusals(lambda message: name in message):
        loaded = load_data(folder / name)
        assert all(query.strip() for query in loaded.queries.texts())
