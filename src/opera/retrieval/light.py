"""One query over a kept index, without torch: for static models, whose embeddings are means of rows of a table.

A search that loads a static model in full notes, in the cache, which embeddings of the corpus the files of that model
made. The next search finds the note by the files' checksums and opens these embeddings. Both embed the query and score
it here, so they print the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opera.core.cache import cached, entry, facts_of
from opera.core.reproducible import is_reproducible
from opera.core.strict_json import read_json
from opera.data import RetrievalData, TextTable
from opera.encoder.embeddings import Embeddings
from opera.encoder.shards import Shards

if TYPE_CHECKING:
    from opera.retrieval.encoder import Encoder

KIND, NOTE = "kept_indexes", "index.json"
FORMAT = 1
"""Goes up when notes change, or the embeddings that they name."""
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
KNOWN_TYPES = {"F16", "F32", "F64"}
"""Types of weights that NumPy reads."""
TILE_ROWS = 65_536


@dataclass(frozen=True)
class StaticModel:
    """A folder of a static model, as sentence-transformers saves it.

    Attributes:
        home: the folder of the table and its tokenizer.
        files: length and checksum of each file, by its name.
    """

    home: Path
    files: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, folder: Path | str) -> StaticModel | None:
        """Recognise one: a table of tokens, then nothing or a normalisation. ``None`` for anything else."""
        try:
            modules = read_json(Path(folder) / "modules.json")
            first, *rest = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
            if first != "StaticEmbedding" or set(rest) - {"Normalize"}:
                return None
            home = Path(folder, modules[0]["path"])
            paths = sorted(path for path in Path(folder).rglob("*") if path.is_symlink() or not path.is_dir())
            if not {home / WEIGHTS, home / TOKENIZER} <= set(paths):
                return None
            return cls(home, {str(path.relative_to(folder)): facts_of(path) for path in paths})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def embed(self, text: str) -> NDArray[np.float32] | None:
        """Embed a text: float32 ``[dimension]`` of length 1, or zeros; ``None`` where the model cannot."""
        from safetensors import safe_open
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.home / TOKENIZER))
        tokenizer.no_padding()
        try:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
        except Exception as error:
            if type(error) is not Exception:  # tokenizers knows no other
                raise
            return None
        with safe_open(str(self.home / WEIGHTS), framework="np") as weights:
            (name, *others) = weights.keys()
            table = weights.get_slice(name)
            rows, dimension = table.get_shape()
            if others or table.get_dtype() not in KNOWN_TYPES or max(ids, default=0) >= rows:
                return None
            total = np.zeros(dimension, dtype=np.float32)
            for number in ids:
                total += table[number : number + 1][0].astype(np.float32)
        mean = (total / np.float32(max(1, len(ids)))).astype(np.float64)
        unit = mean / max(float(np.sqrt((mean * mean).sum())), 1e-12)
        return unit.astype(np.float32) if np.isfinite(unit).all() else None


@dataclass(frozen=True)
class KeptIndex:
    """Embeddings of a corpus in the cache, and the model that embeds queries.

    Attributes:
        model: the model.
        prompts: the model's prompts, by name.
        query_prompt: text before each query.
        vectors: float32 ``[documents, dimension]``.
    """

    model: StaticModel
    prompts: Mapping[str, str]
    query_prompt: str
    vectors: Embeddings

    def search(self, query: str, documents: TextTable, depth: int) -> tuple[NDArray[np.int64], list[float]] | None:
        """Return rows of the best documents and their scores, best first; ``None`` if the query has no embedding."""
        embedding = self.model.embed(f"{self.query_prompt}{query}")
        return None if embedding is None else nearest(embedding, self.vectors, documents.id_rank, depth)


def nearest(
    query: NDArray[np.float32], vectors: Embeddings, id_rank: NDArray[np.int32], depth: int
) -> tuple[NDArray[np.int64], list[float]]:
    """Rank documents for one query exactly as :func:`opera.retrieval.nearest.exact_search` does.

    Products in float32 find the few documents that are scored again, in float64, and rounded to float32.

    Args:
        query: float32 ``[dimension]``, of length 1.
        vectors: float32 ``[documents, dimension]``, of length 1; read in tiles.
        id_rank: rank of each document's id; of equal scores, the greater comes first.
        depth: how many documents to return.

    Returns:
        Rows and scores, best first.
    """
    off = 2.0**-22 * len(query) + 1e-30  # twice what a float32 product of unit vectors may be off, generously
    rows, scores = np.empty(0, np.int64), np.empty(0, np.float32)
    wide = query.astype(np.float64)
    for number, tile in enumerate(vectors.tiles(0, len(vectors), TILE_ROWS)):
        products = tile @ query
        least = np.partition(products, -depth)[-depth] if len(tile) > depth else -np.inf
        found = np.flatnonzero(products >= least - 2 * off)
        exact = (tile[found].astype(np.float64) * wide).sum(axis=1).astype(np.float32) + np.float32(0)  # not -0
        rows, scores = np.append(rows, found + number * TILE_ROWS), np.append(scores, exact)
        best = np.lexsort((id_rank[rows], scores))[::-1][:depth]
        rows, scores = rows[best], scores[best]
    return rows, scores.tolist()


def index_key(
    model: StaticModel, data: RetrievalData, corpus_text: str, prompts: Mapping[str, str | None]
) -> str | None:
    """Digest of all that decides which index a search opens; ``None`` where it takes the long way.

    That is so for several processes, and for ``OPERA_REPRODUCIBLE``, which checks the processor by torch.
    """
    if is_reproducible() or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return None
    versions = [version(name) for name in ("sentence-transformers", "tokenizers")]
    parts = [FORMAT, model.files, data.fingerprint, len(data.corpus), corpus_text, prompts, versions]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def kept_index(key: str, model: StaticModel, documents: int) -> KeptIndex | None:
    """Open an index that a search noted; ``None`` where there is none, or it is damaged."""
    home = entry(KIND, key)
    if home is None:
        return None
    note = read_json(home / NOTE)
    vectors = entry("vectors", note["vectors"])
    if vectors is None:
        return None
    return KeptIndex(model, note["prompts"], note["query_prompt"], Embeddings.open(vectors, Shards.of(documents)))


def note_index(key: str, model: StaticModel, encoder: Encoder, vectors: Embeddings) -> KeptIndex | None:
    """Note an index for the next search, and return it; ``None`` if the two ways do not embed some texts alike."""
    from opera.encoder.token_ids import PROBES  # of a module that loads torch; who has an encoder has loaded it

    if vectors.home is None or encoder.device != "cpu" or not _alike(model, encoder, PROBES):
        return None
    prompts, query_prompt = dict(encoder.model.prompts), encoder.prompts["query"]
    note = {"vectors": vectors.home.name, "prompts": prompts, "query_prompt": query_prompt}
    cached(KIND, key, lambda folder: (folder / NOTE).write_text(json.dumps(note), encoding="utf-8"))
    return KeptIndex(model, prompts, query_prompt, vectors)


def _alike(model: StaticModel, encoder: Encoder, texts: Iterable[str]) -> bool:
    given = list(texts)
    found = [model.embed(f"{encoder.prompts['query']}{text}") for text in given]
    expected = encoder.encode(given, "query")
    return all(
        one is not None and one.shape == other.shape and np.allclose(one, other, atol=1e-6)
        for one, other in zip(found, expected, strict=True)
    )
