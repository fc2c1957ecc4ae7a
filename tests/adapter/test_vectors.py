"""Vectors from files, for models that cannot be loaded."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import opera
from opera.adapter.model import FileVectors, service_model
from opera.data.texts import TextTable
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model
from small_runs import FAST

TABLE = TextTable.from_texts({"a": "text", "b": "text", "c": "text"})
VECTORS = np.array([[3, 0], [0, 2], [1, 1], [5, 5]], dtype=np.float32)
IDS = ["b", "c", "a", "more"]


def write(path: Path, vectors: Any = VECTORS, ids: list[Any] = IDS, **columns: Any) -> Path:
    if path.suffix == ".npy":
        np.save(path, vectors)
        path.with_suffix(".txt").write_text("\n".join(ids) + "\n")
    else:
        pq.write_table(pa.table(columns or {"id": ids, "vector": list(vectors)}), path)
    return path


def read(path: Path) -> np.ndarray:
    return FileVectors(path, TABLE, "query")[np.arange(len(TABLE))]


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_vectors_come_normalised_in_the_order_of_the_rows(name, dtype, tmp_path):
    vectors = read(write(tmp_path / name, VECTORS.astype(dtype)))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [[0.5**0.5, 0.5**0.5], [1, 0], [0, 1]], atol=1e-7)


SPOILT = {
    "must be a Parquet file with the columns 'id' and 'vector'": {"key": IDS},
    "an id is missing, lengths differ": {"id": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]},
    "the vector of 'a' is zero,": {"id": list("abc"), "vector": [[1.0, None]] * 3},
}
"""Columns of a Parquet file by what is wrong with them."""


@pytest.mark.parametrize("message", SPOILT)
def test_a_spoilt_parquet_file_is_refused(message, tmp_path):
    with pytest.raises(opera.DataError, match=message):
        read(write(tmp_path / "v.parquet", **SPOILT[message]))


@pytest.fixture(scope="module")
def files(tmp_path_factory, beir, static_model) -> dict[str, Any]:
    """The static model's vectors in two kinds of files."""
    home, data = tmp_path_factory.mktemp("vectors"), opera.load_data(beir)
    encoder = Encoder(load_model(static_model, "cpu"), use_cache=False)
    queries = encoder.encode_queries(data, np.arange(len(data.queries)))
    write(home / "q.npy", queries, data.queries.ids())
    write(home / "d.parquet", encoder.encode_corpus(data).rows[::-1], data.corpus.ids()[::-1])
    return {"query_vectors": str(home / "q.npy"), "document_vectors": str(home / "d.parquet")}


def test_the_same_vectors_train_the_same_adapter(train, beir, files, tmp_path):
    """From files and from the model: normalised once more, vectors may differ by a last bit, which training amplifies
    by a factor that stays far below a thousand in 60 steps."""
    settings = {**FAST, "learning_rate": 0.02, "adapter": "both", "method": "dp"}
    of_files = opera.adapt(beir, out=tmp_path / "files", **files, **settings)
    of_model = train("model", **settings)
    assert of_files.measures["base"] == pytest.approx(of_model.measures["base"])
    assert of_files.measures["final"]["nDCG@10"] > of_files.measures["base"]["nDCG@10"] + 0.1
    assert of_files.record.model.source == "vectors"
    model, data = load_model(of_model.model_path, "cpu"), opera.load_data(beir)
    vectors = service_model(Path(files["query_vectors"]), Path(files["document_vectors"]), data, "cpu")[0].vectors
    adapter = SimpleNamespace(**runpy.run_path(str(of_files.model_path / "adapter.py")))
    encoder = Encoder(model, use_cache=False)
    documents = np.asarray(encoder.encode_corpus(data).rows)
    np.testing.assert_allclose(
        adapter.documents(vectors["document"][np.arange(len(data.corpus))]), documents, atol=1e-3
    )
    queries = encoder.encode_queries(data, np.arange(len(data.queries)))
    np.testing.assert_allclose(adapter.queries(vectors["query"][np.arange(len(data.queries))]), queries, atol=1e-3)
    assert "adapter.queries(vectors)" in (of_files.model_path / "README.md").read_text()
    names = {path.name for path in of_files.model_path.iterdir()}
    assert names == {"adapter.npz", "adapter.py", "recipe.yaml", "README.md", "opera_run.npz"}
    with pytest.raises(opera.ModelError, match="holds an adapter of vectors from files"):
        opera.evaluate(beir, model=of_files.path)
