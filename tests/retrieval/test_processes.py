"""What several processes compute together is what one computes, to the last bit; and none waits for one that failed."""

from __future__ import annotations

import json
import socket
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from opera.core import processes as shared
from processes import start

JOIN = """
import os, sys
import torch.distributed as dist
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
if world > 1:
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
"""

ENCODE = (
    JOIN
    + """
import hashlib, json
from pathlib import Path
import numpy as np
from opera.core.cache import cache_folder
from opera.data import load_data
from opera.encoder import embeddings
from opera.retrieval import nearest, search
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.models import load_model

search.UNIT, nearest.TILE_BYTES, nearest.BLOCK = 48, 5000, (7, 30)
embeddings.LEAST_ROWS = 32  # four shards of documents
folder, model_folder, out = sys.argv[1:]
data, model = load_data(folder), load_model(model_folder, "cpu")
found = {}
for name, cache in (("cached", True), ("searched as they come", False)):
    encoder = Encoder(model, batch_size=1, use_cache=cache)
    evaluation = evaluate_encoder(encoder, data, "test", ["nDCG@10"])
    found[name] = [evaluation.ranking.doc_rows.tolist(), evaluation.ranking.scores.tolist(), evaluation.measures]
found["vectors"] = hashlib.sha256(Encoder(model, batch_size=1).encode_corpus(data)[:]).hexdigest()
entries = [path for kind in ("tokens", "vectors", "rankings") for path in sorted((cache_folder() / kind).rglob("*"))]
found["cache"] = {str(path.relative_to(cache_folder())): hashlib.sha256(path.read_bytes()).hexdigest()
                  for path in entries if path.is_file() and path.suffix in (".npy", ".bin")}
found["files"] = sorted(str(path.relative_to(cache_folder())) for path in entries)
Path(f"{out}{rank}").write_text(json.dumps(found))
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
"""
)


def run_in(world: int, script: str, arguments: list[str], place: Path) -> list[str]:
    """Run a script in several processes with a cache of their own; return what each printed."""
    place.mkdir()
    (place / "script.py").write_text(script)
    shared = {"WORLD_SIZE": str(world), "MEETING": str(place / "meeting"), "OPERA_CACHE": str(place / "cache")}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)] if world > 1 else [{"RANK": "0"}]
    command = [str(place / "script.py"), *arguments]
    children = [start(command, place / f"log{at}", **shared, **rank) for at, rank in enumerate(ranks)]
    for child in children:
        child.wait()
    return [child.log.read_text() for child in children]


def test_embeddings_rankings_and_cache_are_those_of_one_process(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    found = {}
    for world in (1, 3):  # of the four shards of documents one has two; two have none of the queries
        arguments = [str(beir), str(bert_model), str(tmp_path / f"out{world}-")]
        logs = run_in(world, ENCODE, arguments, tmp_path / str(world))
        for rank in range(world):
            path = tmp_path / f"out{world}-{rank}"
            assert path.is_file(), logs[rank]
            found[world, rank] = json.loads(path.read_text())
    one = found[1, 0]
    assert one["cached"] == one["searched as they come"]
    folders = {Path(name).parts[:2] for name in one["files"]}
    suffixes = Counter(Path(name).suffix for name in one["files"])
    assert Counter(kind for kind, _ in folders) == {"tokens": 1, "vectors": 2, "rankings": 1}
    assert suffixes == {"": 4, ".bin": 1, ".npy": 6, ".npz": 1}, "and nothing else"
    for several in found.values():
        assert several == one


FAIL = (
    JOIN
    + """
from pathlib import Path
from opera.core.cache import cache_folder
from opera.core.errors import ModelError, OperaError
from opera.data import load_data
from opera.encoder import embeddings
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model
from opera.core.processes import everywhere

folder, model_folder, how, out = sys.argv[1:]
embeddings.LEAST_ROWS = 32
data, encoder = load_data(folder), Encoder(load_model(model_folder, "cpu"), batch_size=1)
encode = Encoder._vectors


def fail(self, *texts):
    if how == "dies":
        os._exit(7)
    if how == "raises":
        raise ModelError("the model: cannot encode this")
    if how == "raises what nobody expected":
        raise KeyError("surprise")
    return encode(self, *texts)


if rank == 1:
    Encoder._vectors = fail
if rank == 0 and how == "the cache cannot be used":
    (cache_folder() / "vectors").write_text("a file")
said = ""
try:
    encoder.encode_corpus(data)
except (OperaError, KeyError, RuntimeError) as error:
    said = f"{type(error).__name__}: {error}"
Path(f"{out}{rank}").write_text(said)
if how not in ("dies", "the cache cannot be used"):  # all are still in step, and what is made now is whole
    Encoder._vectors = encode
    assert everywhere(lambda: rank) == [0, 1]
    assert encoder.encode_corpus(data).shape == (120, 32)
    dist.destroy_process_group()
os._exit(0)  # a process whose partner died has nobody to say goodbye to
"""
)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", ["ModelError: the model: cannot encode this"] * 2),
        (
            "raises what nobody expected",
            ["OperaError: process 1 failed (KeyError: 'surprise'); see its message", "KeyError: 'surprise'"],
        ),
        ("the cache cannot be used", ["StorageError: *cannot be written*", "StorageError: *cannot be written*"]),
        ("dies", ["RuntimeError: *", None]),
    ],
)
def test_what_fails_in_one_process_ends_all(
    how: str, said: list[str | None], beir: Path, bert_model: Path, tmp_path: Path
) -> None:
    logs = run_in(2, FAIL, [str(beir), str(bert_model), how, str(tmp_path / "out")], tmp_path / "place")
    for rank, expected in enumerate(said):
        path = tmp_path / f"out{rank}"
        assert path.is_file() == (expected is not None), logs[rank]
        if expected is not None:
            assert fnmatch(path.read_text(), expected)
    left = [path.name for path in (tmp_path / "place" / "cache").rglob("vectors/*") if how != "dies"]
    assert len(left) == (how.startswith("raises")), "only the entry that was made afterwards"


def test_rows_are_shared_in_whole_units(monkeypatch: pytest.MonkeyPatch) -> None:
    @given(st.integers(0, 500), st.integers(1, 40), st.integers(1, 9))
    def check(count: int, unit: int, world: int) -> None:
        monkeypatch.setattr(shared, "process_count", lambda: world)
        ranges = shared.shares(count, unit)
        assert np.array_equal(np.concatenate([np.arange(part.start, part.stop) for part in ranges]), np.arange(count))
        assert all(part.start % unit == 0 or part.start == count for part in ranges)
        units = [-(-(part.stop - part.start) // unit) for part in ranges]
        assert max(units) - min(units) <= 1

    check()


def test_commands_share_the_work_and_one_process_prints(beir: Path, static_model: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared_by_all = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in "01":
        place = tmp_path / rank
        place.mkdir()
        command = ["-m", "opera", "mine", str(beir), "--model", str(static_model), "--range", "2:30"]
        command += ["--out", str(place / "mined.tsv")]
        children.append(start(command, tmp_path / f"log{rank}", RANK=rank, LOCAL_RANK=rank, **shared_by_all))
    said = []
    for child in children:
        assert child.wait() == 0, child.log.read_text()
        said.append(child.log.read_text().count(" negatives"))
    assert said == [1, 0]
    assert not (tmp_path / "1" / "mined.tsv").exists()
    alone = opera.mine(beir, model=static_model, range=(2, 30), out=tmp_path / "alone.tsv")
    assert alone.num_rows > 0
    assert (tmp_path / "0" / "mined.tsv").read_bytes() == (tmp_path / "alone.tsv").read_bytes()
