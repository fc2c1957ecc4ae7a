"""What several processes compute together is what one computes, to the last bit; and none waits for one that failed."""

import json
from collections import Counter
from pathlib import Path

import opera
from processes import launched, start

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
from opera.data import Mixture, load_data
from opera.retrieval import vectors as vector_files
from opera.retrieval import nearest, search, vectors
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.models import load_model

search.UNIT, vectors.TILE_BYTES, nearest.QUERIES, nearest.DOCUMENTS = 48, 5000, 7, 30
vector_files.LEAST_ROWS = 32  # four shards of documents
folder, model_folder, out = sys.argv[1:]
data, model = load_data(folder), load_model(model_folder, "cpu")
results = {}
for name, cache, passages in (
    ("cached", True, None), ("searched as they come", False, None),
    ("passages", True, 3), ("passages as they come", False, 3),
):
    encoder = Encoder(model, batch_size=1, use_cache=cache, passage_tokens=passages)
    evaluation = evaluate_encoder(encoder, Mixture.of(data), "test", ["nDCG@10"])
    results[name] = [evaluation.ranking.doc_rows.tolist(), evaluation.ranking.scores.tolist(), evaluation.measures]
results["vectors"] = hashlib.sha256(Encoder(model, batch_size=1).encode_corpus(data).rows[:]).hexdigest()
entries = [path for kind in ("tokens", "vectors", "rankings") for path in sorted((cache_folder() / kind).rglob("*"))]
results["cache"] = {str(path.relative_to(cache_folder())): hashlib.sha256(path.read_bytes()).hexdigest()
                  for path in entries if path.is_file() and path.suffix in (".npy", ".bin")}
results["files"] = sorted(str(path.relative_to(cache_folder())) for path in entries)
Path(f"{out}{rank}").write_text(json.dumps(results))
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


def test_embeddings_rankings_and_cache_are_those_of_one_process(beir, bert_model, tmp_path):
    results = {}
    for world in (1, 3):  # of the four shards of documents one has two; two have none of the queries
        arguments = [str(beir), str(bert_model), str(tmp_path / f"out{world}-")]
        logs = run_in(world, ENCODE, arguments, tmp_path / str(world))
        for rank in range(world):
            path = tmp_path / f"out{world}-{rank}"
            assert path.is_file(), logs[rank]
            results[world, rank] = json.loads(path.read_text())
    one = results[1, 0]
    assert one["cached"] == one["searched as they come"]
    assert one["passages"] == one["passages as they come"] != one["cached"]
    kinds = Counter(kind for kind, _ in {Path(name).parts[:2] for name in one["files"]})
    assert kinds == {"tokens": 2, "vectors": 3, "rankings": 2}
    for several in results.values():
        assert several == one


FAIL = (
    JOIN
    + """
from pathlib import Path
from opera.core.errors import ModelError, OperaError
from opera.data import load_data
from opera.retrieval import vectors as vector_files
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model

folder, model_folder, out = sys.argv[1:]
vector_files.LEAST_ROWS = 32
data, encoder = load_data(folder), Encoder(load_model(model_folder, "cpu"), batch_size=1)
encode = Encoder._vectors


def fail(self, *texts):
    raise ModelError("the model: cannot encode this")


if rank == 1:
    Encoder._vectors = fail
try:
    encoder.encode_corpus(data).rows
except OperaError as error:
    message = f"{type(error).__name__}: {error}"
Encoder._vectors = encode
assert encoder.encode_corpus(data).rows.shape == (120, 32), "all are still in step, and what is made now is whole"
Path(f"{out}{rank}").write_text(message)
dist.destroy_process_group()
"""
)


def test_what_fails_in_one_process_ends_all(beir, bert_model, tmp_path):
    logs = run_in(2, FAIL, [str(beir), str(bert_model), str(tmp_path / "out")], tmp_path / "place")
    for rank, log in enumerate(logs):
        assert (tmp_path / f"out{rank}").is_file(), log
        assert (tmp_path / f"out{rank}").read_text() == "ModelError: the model: cannot encode this"


def test_commands_share_the_work_and_one_process_prints(beir, static_model, tmp_path):
    (tmp_path / "negatives").mkdir()
    command = ["-m", "opera", "mine", str(beir), "--model", str(static_model), "--range", "2:30", "--out"]
    children = launched([*command, str(tmp_path / "negatives" / "shared.tsv")], tmp_path / "log")
    logs = [(child.wait(), child.log.read_text()) for child in children]
    assert [status for status, _ in logs] == [0, 0], logs
    assert [log.count(" negatives") for _, log in logs] == [1, 0]
    alone = opera.mine(beir, model=static_model, range=(2, 30), out=tmp_path / "alone.tsv")
    assert alone.num_rows > 0
    assert (tmp_path / "negatives" / "shared.tsv").read_bytes() == (tmp_path / "alone.tsv").read_bytes()
