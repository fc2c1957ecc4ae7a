"""Four processes encode, score, mine and evaluate to the same bytes as one, by the commands."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from processes import start

DOCUMENTS, QUERIES = 13_000, 40
"""More than three chunks of 4,096 documents, so that each of four processes has some."""


def made_up(home: Path) -> Path:
    """Write a BEIR folder of short texts of unequal length, each query with two documents."""
    rng = np.random.default_rng(0)
    words = [f"{first}{second}" for first in "abcdefgh" for second in ("ar", "el", "in", "ot")]
    (home / "qrels").mkdir(parents=True)

    def text(row: int) -> str:
        return " ".join(rng.choice(words, rng.integers(1, 8))) + f" {row}"

    with (home / "corpus.jsonl").open("w") as corpus, (home / "queries.jsonl").open("w") as queries:
        corpus.writelines(json.dumps({"_id": f"d{row}", "text": text(row)}) + "\n" for row in range(DOCUMENTS))
        queries.writelines(json.dumps({"_id": f"q{row}", "text": text(row)}) + "\n" for row in range(QUERIES))
    for split, rows in (("train", range(QUERIES // 2)), ("test", range(QUERIES // 2, QUERIES))):
        lines = [f"q{row}\td{doc}\t1" for row in rows for doc in rng.choice(DOCUMENTS, 2, replace=False)]
        (home / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return home


def run_commands(world: int, data: Path, model: Path, place: Path) -> None:
    """Run the three commands in ``world`` processes with a cache of their own; the outputs lie in ``place``."""
    commands = {
        "evaluate": ["--run-file", str(place / "ranking.trec")],
        "mine": ["--range", "2:30", "--out", str(place / "mined.tsv")],
        "score": ["--cbs", "--cbs-pool", "500", "--out", str(place / "scores.tsv")],
    }
    place.mkdir()
    for name, options in commands.items():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command = ["-m", "opera", name, str(data), "--model", str(model), *options]
        all_alike = {"OPERA_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
        if world > 1:
            all_alike |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} if world > 1 else {} for rank in range(world)]
        children = [start(command, place / f"{name}{at}.log", **all_alike, **rank) for at, rank in enumerate(ranks)]
        for child in children:
            assert child.wait() == 0, child.log.read_text()


def files(place: Path) -> dict[str, bytes]:
    """Return the bytes of the outputs and of what the cache holds, by name; logs are left out."""
    found = [path for path in sorted(place.rglob("*")) if path.is_file() and path.suffix not in (".log", ".lock")]
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


@pytest.mark.slow
def test_four_processes_write_the_bytes_of_one(bert_model: Path, tmp_path: Path) -> None:
    data = made_up(tmp_path / "data")
    for world in (1, 4):
        run_commands(world, data, bert_model, tmp_path / str(world))
    one, four = (files(tmp_path / str(world)) for world in (1, 4))
    assert {"ranking.trec", "mined.tsv", "scores.tsv"} <= set(one)
    assert sum(name.startswith("cache/") for name in one) > 6
    assert list(one) == list(four)
    assert [name for name in one if one[name] != four[name]] == []
