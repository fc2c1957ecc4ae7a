"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{train,dev,test}.tsv``, grades as ``score``."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.errors import DataError, nearest
from opera.core.storage import exhausted
from opera.core.terminal import shortened, shown
from opera.data.checks import check_id, parse_grade
from opera.data.lines import json_records, numbered_lines, text_field
from opera.data.names import SPLIT_NAMES
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, digest_files, load_or_parse
from opera.data.texts import ROWS_AT_ONCE, TextRow, TextTable

log = logging.getLogger("opera")

QRELS_HEADER = ["query-id", "corpus-id", "score"]


def load_beir(folder: Path) -> RetrievalData:
    """Read a BEIR folder; each ``.tsv`` file in ``qrels/`` is a split; ``val`` is dev.

    Raises:
        DataError: naming file, line, rule and value of the first error.
    """
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    for path in (corpus, queries):
        try:
            path.lstat()
        except FileNotFoundError:
            raise DataError(f"{folder}: not a BEIR folder: {path.name} is missing") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    qrels, left_out = _qrels_files(folder)

    def parse(builder: DataBuilder) -> None:
        for path, optional in ((corpus, ["title", "metadata"]), (queries, ["metadata"])):
            check_unique_ids(
                path, builder.write_texts(path.stem, _texts(path, ["_id", "text"], optional))
            )
        for path in qrels:
            builder.splits[path.stem] = _read_qrels(path, builder)

    def digest() -> str:
        return digest_files([corpus, queries, *qrels], "beir")

    data = load_or_parse(digest, folder.resolve().name, str(folder), parse)
    splits = {
        SPLIT_NAMES.get(name.lower(), name): judgements for name, judgements in data.splits.items()
    }
    return replace(data, splits=splits, notes=(*data.notes, *left_out))


def write_beir(data: RetrievalData, folder: Path) -> None:
    """See :meth:`opera.RetrievalData.write_beir`."""
    lost = {
        "weights of pairs": any(qrels.weights is not None for qrels in data.splits.values()),
        "given negatives": data.given_negatives is not None,
        "a teacher's scores": data.teacher is not None,
        "a query prompt": data.query_prompt is not None,
    }
    if any(lost.values()):
        listed = ", ".join(what for what, there in lost.items() if there)
        log.warning(
            "%s: a BEIR folder has no place for all of %s; not written: %s",
            folder,
            data.name,
            listed,
        )
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, table in (("corpus", data.corpus), ("queries", data.queries)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for batch in table.table.to_batches(max_chunksize=ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    fields = {"_id": row["id"], "title": row["title"], "text": row["text"]}
                    if name == "queries":
                        del fields["title"]
                    file.write(json.dumps(fields, ensure_ascii=False) + "\n")
    query_ids, doc_ids = data.queries.ids(), data.corpus.ids()
    for name, qrels in data.splits.items():
        with (folder / "qrels" / f"{name}.tsv").open("w", encoding="utf-8", newline="") as file:
            file.write("\t".join(QRELS_HEADER) + "\n")
            query_rows = qrels.query_rows[qrels.query_index]
            for query, doc, grade in zip(query_rows, qrels.doc_rows, qrels.grades, strict=True):
                file.write(f"{query_ids[query]}\t{doc_ids[doc]}\t{grade}\n")


def _qrels_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the qrels files, in order, and a note on other files beside them, such as those that macOS leaves."""
    home = folder / "qrels"
    try:
        found = sorted(home.iterdir())
    except NotADirectoryError:
        raise DataError(f"{folder}: not a BEIR folder: qrels must be a folder") from None
    except FileNotFoundError:
        found = []
    except OSError as error:
        raise exhausted(home, error) or DataError(
            f"{home}: cannot be read ({error.strerror})"
        ) from None
    files = [
        path for path in found if path.suffix.lower() == ".tsv" and not path.name.startswith(".")
    ]
    if not files:
        raise DataError(
            f"{folder}: not a BEIR folder: qrels/ holds no .tsv file such as qrels/train.tsv"
        )
    names: dict[str, Path] = {}
    for path in files:
        check_id(f"{home}: the name of a split", path.stem)
        split = path.stem.casefold()
        split = SPLIT_NAMES.get(split, split)
        if split in names:
            raise DataError(
                f"{path}: names the same split as {names[split].name}; keep one of the two"
            )
        names[split] = path
    others = ", ".join(shown(path.name) for path in found if path not in files)
    return files, [
        f"in qrels/ only .tsv files that are not hidden are read, not {shortened(others)}"
    ] if others else []


def check_unique_ids(path: Path, table: TextTable) -> None:
    """Check that a file has lines, and that no id occurs twice.

    Raises:
        DataError: naming a repeated id and the line of its second occurrence.
    """
    if len(table) == 0:
        raise DataError(f"{path}: is empty; it must have at least one line")
    if pc.count_distinct(table.table["id"]).as_py() == len(table):
        return
    repeated = Counter(table.ids()).most_common(1)[0][0]
    records = json_records(path, ["_id"], ["text", "title", "metadata"])
    lines = [number for number, record in records if record["_id"] == repeated]
    if len(lines) < 2:
        raise DataError(f"{path}: changed while it was read; run the command again")
    place = f"{path}:{lines[1]}"
    raise DataError(
        f"{place}: duplicate _id {shown(repeated)}, first seen on line {lines[0]}; ids must be unique"
    )


def _texts(path: Path, required: list[str], optional: list[str]) -> Iterator[TextRow]:
    for number, record in json_records(path, required, optional):
        identifier = text_field(path, number, record, "_id")
        title, text = (text_field(path, number, record, key) for key in ("title", "text"))
        check_id(f"{path}:{number}: column '_id'", identifier)
        yield identifier, title, text


def _read_qrels(path: Path, builder: DataBuilder) -> Qrels:
    numbers, query_ids, doc_ids, grades = [], [], [], []
    lines = numbered_lines(path)
    _check_header(path, *next(lines, (0, "")))
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != 3:
            raise DataError(
                f"{path}:{number}: must have 3 columns separated by tabs, got {len(fields)}: {shown(line)}"
            )
        grades.append(parse_grade(f"{path}:{number}", fields[2]))
        numbers.append(number)
        query_ids.append(fields[0])
        doc_ids.append(fields[1])
    if not numbers:
        raise DataError(f"{path}: has no judgements")
    query_rows = builder.tables["queries"].find_rows(pa.array(query_ids))
    doc_rows = builder.tables["corpus"].find_rows(pa.array(doc_ids))
    for rows, ids, what, file in (
        (query_rows, query_ids, "query-id", "queries.jsonl"),
        (doc_rows, doc_ids, "corpus-id", "corpus.jsonl"),
    ):
        if (rows < 0).any():
            at = int(np.argmax(rows < 0))
            raise DataError(
                f"{path}:{numbers[at]}: {what} {shown(ids[at])} does not exist in {file}"
            )
    builder.note_places(query_rows, doc_rows, lambda at: f"qrels/{path.name}:{numbers[at]}")
    return _merge_repeats(
        path, np.array(numbers), query_rows, doc_rows, np.array(grades), builder.notes
    )


def _check_header(path: Path, number: int, header: str) -> None:
    if number == 0:
        raise DataError(
            f"{path}: is empty; it must start with the header {' TAB '.join(QRELS_HEADER)}"
        )
    found = header.split("\t")
    if found == QRELS_HEADER:
        return
    if len(found) == 1:
        raise DataError(
            f"{path}:{number}: columns must be separated by tabs, and there is none in {shown(header)}"
        )
    wrong = next((name for name in found if name not in QRELS_HEADER), None)
    hint = f": unknown column {shown(wrong)}{nearest(wrong[:100], QRELS_HEADER)}" if wrong else ""
    raise DataError(
        f"{path}:{number}: the header must be {' TAB '.join(QRELS_HEADER)}, got {shown(header)}{hint}"
    )


def _merge_repeats(
    path: Path,
    numbers: np.ndarray,
    query_rows: np.ndarray,
    doc_rows: np.ndarray,
    grades: np.ndarray,
    notes: list[str],
) -> Qrels:
    """Merge repeated rows; raise an error if one pair has two grades."""
    order = np.lexsort((numbers, doc_rows, query_rows))
    query, doc, grade = query_rows[order], doc_rows[order], grades[order]
    repeat = np.concatenate([[False], (query[1:] == query[:-1]) & (doc[1:] == doc[:-1])])
    clash = np.flatnonzero(repeat & (grade != np.roll(grade, 1)))
    if len(clash):
        first, second = numbers[order[clash[0] - 1]], numbers[order[clash[0]]]
        raise DataError(
            f"{path}:{second}: grade {grade[clash[0]]} for a pair that line {first} gives grade {grade[clash[0] - 1]}; "
            "a pair has one grade"
        )
    if repeat.any():
        notes.append(f"{path.name}: merged {int(repeat.sum())} repeated rows")
    return Qrels.from_arrays(query[~repeat], doc[~repeat], grade[~repeat])
