"""Small folders laid out as data sets on the Hugging Face hub are."""

from pathlib import Path

from tiny_world import write_table

CARD = "---\nconfigs:\n{}---\n"


def write_mteb(folder: Path) -> Path:
    """Corpus, queries and judgements as MTEB keeps them: a configuration each, judgements as ``default``."""
    files = {"corpus": {"corpus": "corpus.jsonl"}, "queries": {"queries": "queries.jsonl"}}
    _write_card(
        folder, {**files, "default": {split: f"qrels/{split}.jsonl" for split in ("train", "validation", "test")}}
    )
    _write_texts(folder)
    for split, query in (("train", "q1"), ("validation", "q2"), ("test", "q3")):
        rows = [{"query-id": query, "corpus-id": doc, "score": 1.0} for doc in ("d1", "d2", "d9")]
        write_table(folder / "qrels" / f"{split}.jsonl", rows)
    return folder


def write_beir_hub(folder: Path) -> Path:
    """The same as BEIR keeps it: judgements in a data set of their own, as tables, ids of documents as numbers."""
    _write_card(folder, {"corpus": {"corpus": "corpus.jsonl"}, "queries": {"queries": "queries.jsonl"}})
    _write_texts(folder, first="1", second="2")
    judged = folder.with_name(f"{folder.name}-qrels")
    judged.mkdir(parents=True)
    for split, query in (("train", "q1"), ("test", "q3")):
        (judged / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{query}\t1\t2\n{query}\t2\t0\n")
    return folder


def _write_card(folder: Path, configs: dict[str, dict[str, str]]) -> None:
    lines = []
    for name, files in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        lines += [f"  - split: {split}\n    path: {path}" for split, path in files.items()]
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(CARD.format("".join(f"{line}\n" for line in lines)))


def _write_texts(folder: Path, first: str = "d1", second: str = "d2") -> None:
    docs = [{"_id": first, "title": "Title", "text": "one"}, {"_id": second, "title": "", "text": "two"}]
    write_table(folder / "corpus.jsonl", [*docs, {"_id": "empty", "title": "", "text": ""}])
    write_table(folder / "queries.jsonl", [{"_id": f"q{number}", "text": f"query {number}"} for number in range(1, 4)])
