"""What OPERA loads is what an independent reader sees in the same files, or OPERA refuses them.

Columns, types, nulls and order change late in the files; batches are small here, so that late is soon.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from differential import (
    NAMES,
    PLAIN,
    SPLITS,
    Row,
    Seen,
    Table,
    WrongError,
    assert_equal,
    beir_data,
    changed,
    flagembedding_data,
    loaded,
    read_arrow,
    read_csv,
    read_jsonl,
    read_parquet,
    read_qrels,
    read_tsv,
    table_data,
    tevatron_data,
    write_arrow,
    write_csv,
    write_jsonl,
    write_parquet,
    write_tsv,
)
from fuzzing import few, only_refusals, spoilt, workplace
from opera.data import RetrievalData, load_data

FORMATS: Mapping[str, tuple[Any, Callable[..., Table]]] = {
    "csv": (write_csv, read_csv),
    "tsv": (write_tsv, read_tsv),
    "jsonl": (write_jsonl, read_jsonl),
    "parquet": (write_parquet, read_parquet),
    "arrow": (write_arrow, read_arrow),
}
LATE = ["passage", "clicks"]
IDS = ["1", "2", "a", "007", "d0", "q0"]
text = st.sampled_from(PLAIN)


@pytest.fixture(scope="module", autouse=True)
def _small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opera.data.tables.rows.BATCH_ROWS", 3)
        patch.setattr("opera.data.texts.BATCH_ROWS", 2)
        patch.setattr("opera.data.texts.ROWS_AT_ONCE", 2)
        yield


def compare(
    draw: Callable[..., Any], folder: Path, load: Callable[[], RetrievalData], read: Callable[[], Seen], plain: bool
) -> None:
    """Check that both see the same, and that files in which nothing was changed are read.

    Of three times one, the bytes of a file are spoilt. A file of several is then no trainer's, perhaps, and is noted
    and not read, which the reader does not know.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if bytes_too := draw(st.integers(0, 2)) == 2:
        path = draw(st.sampled_from(files))
        path.write_bytes(draw(spoilt(path.read_bytes())))
    try:
        seen = read()
    except (WrongError, LookupError, AttributeError, TypeError, ValueError, OSError, csv.Error, pa.ArrowException) as e:
        event(f"an error to the reader: {type(e).__name__}")
        seen = None
    with only_refusals(lambda message: str(folder) in message or "--columns" in message) as refused:
        data = load()
        if not (bytes_too and any("not read" in note for note in data.notes)):
            assert seen is not None, "OPERA reads what the documentation calls an error"
            assert_equal(loaded(data, seen), seen)
        assert load().fingerprint == data.fingerprint  # from the cache
    event("refused" if refused else "equal")
    if plain and not bytes_too:
        assert not refused, refused
        assert seen is not None


def same(one: Any, other: Any) -> bool:
    """Whether two are equal, types as well: to Python, 0 is ``False``."""
    return json.dumps(one) == json.dumps(other)


@st.composite
def pairs_of_texts(draw: Callable[..., Any]) -> list[Row]:
    """Pairs of texts, with some of the other columns."""
    also = draw(st.lists(st.sampled_from(["title", "grade", "weight", "split", "negative", "ids"]), unique=True))
    roles = [
        "query",
        "document",
        *(own for role in also for own in (["query_id", "document_id"] if role == "ids" else [role])),
    ]
    names = {role: draw(st.sampled_from(NAMES[role])) for role in roles}
    rows = []
    for _ in range(draw(st.integers(2, 9))):
        values: Row = {"query": draw(text), "document": draw(text)}
        values["query_id"], values["document_id"] = (f"i{PLAIN.index(values[s])}" for s in ("query", "document"))
        values |= {"title": f"of {values['document']}", "negative": draw(text), "split": draw(st.sampled_from(SPLITS))}
        values |= {"grade": draw(st.integers(0, 3)), "weight": draw(st.sampled_from([0, 1, 2.5, 7]))}
        rows.append({names[role]: values[role] for role in roles})
    return rows


@st.composite
def pairs_of_ids(draw: Callable[..., Any], by_text: bool = False) -> tuple[list[Row], list[Row], list[Row]]:
    """Documents, queries, and pairs of their ids; perhaps of the texts of documents."""
    documents, queries = (
        [{"id": own, "text": draw(text)} for own in draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True))]
        for _ in range(2)
    )
    if draw(st.booleans()):
        documents = [{**row, "title": draw(text)} for row in documents]
    key = draw(st.sampled_from(["id", "id", "text"])) if by_text else "id"
    pairs = [
        {
            "query_id": draw(st.sampled_from(queries))["id"],
            "document_id": draw(st.sampled_from(documents))[key],
            "grade": draw(st.integers(0, 3)),
        }
        for _ in range(draw(st.integers(2, 9)))
    ]
    return documents, queries, pairs


@pytest.mark.parametrize("suffix", FORMATS)
@few(30)
@given(st.data())
def test_tables_of_texts(suffix: str, data: st.DataObject) -> None:
    write, read = FORMATS[suffix]
    rows = data.draw(pairs_of_texts())
    late = data.draw(changed(rows, LATE, flat=suffix in ("csv", "tsv")))
    cut = data.draw(st.sampled_from([0, 0, len(rows) // 2]))
    splits = data.draw(st.sampled_from([(None, None), ("train", "test")])) if cut else (None,)
    if splits[0]:
        late = [{name: own for name, own in row.items() if name.lower() != "split"} for row in late]
    parts = [late[:cut], late[cut:]] if cut else [late]
    with workplace() as folder:
        (folder / "data").mkdir()
        files = [folder / f"data/{split or 'part'}-{at}.{suffix}" for at, split in enumerate(splits)]
        plain = [write(file, part, data.draw) for file, part in zip(files, parts, strict=True)]

        def seen() -> Seen:
            return table_data([(split, read(file, "pairs")) for split, file in zip(splits, files, strict=True)])

        source = folder / "data" if cut else files[0]
        compare(data.draw, folder, lambda: load_data(source), seen, all(plain) and same(late, rows))


@pytest.mark.parametrize("suffix", [*FORMATS, "qrels"])
@few(30)
@given(st.data())
def test_tables_of_ids(suffix: str, data: st.DataObject) -> None:
    write, read = FORMATS["tsv" if suffix == "qrels" else suffix]
    tables = data.draw(pairs_of_ids(by_text=suffix != "qrels"))
    at, ids = data.draw(st.integers(0, 2)), {row.get("id") for row in tables[0]}
    late = list(tables)
    late[at] = data.draw(changed(tables[at], LATE * (at == 2), flat=suffix in ("csv", "tsv", "qrels")))
    with workplace() as folder:
        ending = "tsv" if suffix == "qrels" else suffix
        files = [folder / f"{name}.{ending}" for name in ("documents", "queries", "pairs")]
        plain = [write(file, rows, data.draw) for file, rows in zip(files, late, strict=True)]
        if suffix == "qrels":
            files[2] = folder / "pairs.qrels"
            lines = [f"{row.get('query_id')} 0 {row.get('document_id')} {row.get('grade')}" for row in late[2]]
            files[2].write_text("\n".join([*lines, ""]), encoding="utf-8")

        def seen() -> Seen:
            pairs = read_qrels(files[2]) if suffix == "qrels" else read(files[2], "pairs")
            return table_data([(None, pairs)], read(files[0], "documents"), read(files[1], "queries"))

        compare(
            data.draw,
            folder,
            lambda: load_data(documents=files[0], queries=files[1], pairs=files[2]),
            seen,
            all(plain) and same(late, tables) and {row["document_id"] for row in tables[2]} <= ids,
        )


def write_lines(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def written(folder: Path, tables: Mapping[str, list[Row]]) -> tuple[Path, dict[str, Path]]:
    """Write a JSON Lines file per table; return what is given to OPERA, a lone file itself, and the files by name."""
    folder.mkdir()
    files = {name: folder / f"{name}.jsonl" for name in tables}
    for name, rows in tables.items():
        write_lines(files[name], rows)
    return folder if len(files) > 1 else files["train_lines"], files


@few(60)
@given(st.data())
def test_beir_folders(data: st.DataObject) -> None:
    documents, queries, pairs = data.draw(pairs_of_ids())
    documents, queries = ([{"_id": row["id"], **row} for row in rows] for rows in (documents, queries))
    for row in [*documents, *queries]:
        del row["id"]
    tables = [documents, queries, pairs]
    at = data.draw(st.integers(0, 2))
    late = list(tables)
    late[at] = data.draw(changed(tables[at], flat=at == 2))
    grades = {(row["query_id"], row["document_id"], row["grade"]) for row in pairs}
    plain = same(late, tables) and len(grades) == len({own[:2] for own in grades})
    with workplace() as folder:
        (folder / "data/qrels").mkdir(parents=True)
        write_lines(folder / "data/corpus.jsonl", late[0])
        write_lines(folder / "data/queries.jsonl", late[1])
        cut = data.draw(st.integers(0, len(pairs) - 1))
        for name, rows in (("train", late[2][cut:]), ("test", late[2][:cut])):
            lines = ["\t".join(str(row.get(key)) for key in ("query_id", "document_id", "grade")) for row in rows]
            if rows:
                whole = "\n".join(["query-id\tcorpus-id\tscore", *lines, ""])
                (folder / f"data/qrels/{name}.tsv").write_text(whole, encoding="utf-8")
        source = folder / "data"
        compare(data.draw, folder, lambda: load_data(source), lambda: beir_data(source), plain)


@few(60)
@given(st.data())
def test_flagembedding(data: st.DataObject) -> None:
    draw = data.draw
    also = {key for key in ("neg", "pos_scores", "prompt", "type", "corpus") if draw(st.booleans())}
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 6))):
        own = {"query": draw(text), "pos": draw(st.lists(text, min_size=1, max_size=2))}
        own |= {"neg": draw(st.lists(text, max_size=2)), "pos_scores": [0.5, -2][: len(own["pos"])]}
        own |= {"prompt": "find: ", "type": "normal"}
        rows.append({key: value for key, value in own.items() if key in ("query", "pos", *also)})
    cut = draw(st.integers(0, len(rows) - 1))
    tables = {"train_lines": rows[cut:], **({"dev_lines": rows[:cut]} if cut else {})}
    if "corpus" in also:
        documents, queries, pairs = draw(pairs_of_ids())
        tables |= {"corpus": documents, "test_queries": queries}
        tables["test_qrels"] = [
            {"qid": row["query_id"], "docid": row["document_id"], "relevance": row["grade"]} for row in pairs
        ]
    name = draw(st.sampled_from(sorted(tables)))
    late = {**tables, name: draw(changed(tables[name], ["neg", "pos_scores", "neg_scores", "prompt"]))}
    with workplace() as folder:
        source, files = written(folder / "data", late)
        plain = same(late, tables) and "corpus" not in also
        compare(draw, folder, lambda: load_data(source), lambda: flagembedding_data(files), plain)


@few(60)
@given(st.data())
def test_tevatron(data: st.DataObject) -> None:
    draw = data.draw
    ids = {own: draw(text) for own in IDS}
    whole = draw(st.booleans())
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 6))):
        query = draw(text)
        row: Row = {"query_id": f"i{PLAIN.index(query)}", "query" if whole else "query_text": query}
        for kind, least in (("positive", 1), ("negative", 0)):
            chosen = draw(st.lists(st.sampled_from(IDS), min_size=least, max_size=2))
            passages = [{"docid": own, "title": "", "text": ids[own]} for own in chosen]
            row |= {f"{kind}_passages": passages} if whole else {f"{kind}_document_ids": chosen}
        rows.append(row)
    corpus = [{"docid": own, "title": "", "text": text} for own, text in ids.items()]
    cut = draw(st.integers(0, len(rows) - 1))
    tables = {"train_lines": rows[cut:], **({"dev_lines": rows[:cut]} if cut else {})}
    if not whole:
        tables["corpus"] = corpus
    name = draw(st.sampled_from(sorted(tables)))
    late = {**tables, name: draw(changed(tables[name]))}
    if whole:  # also within the passages
        late = deepcopy(late)
        lists = [own for row in late["train_lines"] if type(own := row.get("negative_passages")) is list and own]
        if lists and type((passages := lists[-1])[-1]) is dict:
            passages[-1:] = draw(changed(passages[-1:]))
    with workplace() as folder:
        source, files = written(folder / "data", late)
        plain = same(late, tables)
        compare(draw, folder, lambda: load_data(source), lambda: tevatron_data(files), plain)
