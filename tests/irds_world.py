"""Small files laid out as the sources of the paper's eight data sets have theirs, where ir_datasets looks for them."""

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

SPLITS = ("train", "dev", "test")


def write_irds(home: Path) -> Path:
    """Write the files of all eight below the folder that IR_DATASETS_HOME names."""
    for name in ("nfcorpus", "fiqa", "hotpotqa", "fever"):
        _write_beir_zip(home / "beir" / name / "source.zip", name)
    write_antique(home / "antique")
    _write_tripclick(home / "tripclick" / "benchmark.tar.gz")
    _write_dpr(home / "dpr-w100")
    return home


def _write_beir_zip(path: Path, name: str) -> None:
    """Three documents, one of them empty as in FiQA, and one query per split; grades up to 2 as in NFCorpus."""
    docs = [
        {"_id": "MED-1", "title": "Title one", "text": "first text", "metadata": {"url": "https://one"}},
        {"_id": "MED-2", "title": "Title two", "text": "second\u2003text", "metadata": {"url": "https://two"}},
        {"_id": "MED-3", "title": "", "text": "", "metadata": {"url": ""}},
    ]
    queries = [{"_id": f"PLAIN-{split}", "text": f"a {split} query", "metadata": {"url": ""}} for split in SPLITS]
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/corpus.jsonl", _lines(docs))
        archive.writestr(f"{name}/queries.jsonl", _lines([*queries, {**queries[0], "_id": "PLAIN-unjudged"}]))
        for split in SPLITS:
            rows = [f"PLAIN-{split}\tMED-1\t1", f"PLAIN-{split}\tMED-2\t2", f"PLAIN-{split}\tMED-9\t1"]
            archive.writestr(f"{name}/qrels/{split}.tsv", "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")


def _lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def write_antique(folder: Path) -> None:
    """Write a collection of three answers, and one question per split, in ANTIQUE's own format."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "collection.tsv").write_text("1_0\tan answer\n1_1\tanother answer\n2_0\tno answer\n")
    for split, number in (("train", 3), ("test", 4)):
        (folder / split).mkdir()
        (folder / split / "queries.txt").write_text(f"{number}\thow is {split}?\n")
        rows = [f"{number} U0 1_0 4", f"{number} Q0 1_1 3", f"{number} Q0 2_0 2"]
        (folder / split / "qrels").write_text("\n".join(rows) + "\n")


def _write_tripclick(path: Path) -> None:
    documents = "".join(
        f"<DOC>\n<DOCNO>{number}</DOCNO>\n<TITLE>Title {number}</TITLE>\n<URL>https://{number}</URL>\n"
        f"<TEXT>\nabstract {number}\n</TEXT>\n</DOC>\n"
        for number in range(1, 5)
    )
    members = {"benchmark/documents/docs_grp_00.txt": documents}
    for part in ("head", "torso"):
        for split in ("train", "val"):
            topic = f"<top>\n\n<num> Number: 7\n<title> a {part} {split} query\n\n</top>\n"
            members[f"benchmark/topics/topics.{part}.{split}.txt"] = topic
            members[f"benchmark/qrels/qrels.raw.{part}.{split}.txt"] = "7 0 1 1\n7 0 2 0\n7 0 3 1\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


def _write_dpr(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    passages = [f'{number}\t"passage {number}"\tTitle {number}' for number in range(1, 6)]
    with gzip.open(folder / "docs.tsv.gz", "wt") as file:
        file.write("\n".join(["id\ttext\ttitle", *passages]) + "\n")
    for split in ("train", "dev"):
        records = [
            {
                "question": f"which {split}?",
                "answers": ["this", "that"],
                "positive_ctxs": [_context(1, 5), _context(2, 1000)],
                "hard_negative_ctxs": [_context(3, 4)],
                "negative_ctxs": [_context(4, 0)],
            }
        ]
        with gzip.open(folder / f"tqa-{split}.json.gz", "wt") as file:
            json.dump(records, file)


def _context(number: int, score: int) -> dict[str, Any]:
    return {"psg_id": str(number), "title": f"Title {number}", "text": f"passage {number}", "score": score}


def irds_home() -> Path:
    """The folder that the session's ir_datasets reads; it is chosen when the library is imported."""
    return Path(os.environ["IR_DATASETS_HOME"])
