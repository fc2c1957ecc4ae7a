"""What each piece of ``opera/encoder`` brings on a CPU: a training step and encoding with it switched off.

    OMP_NUM_THREADS=1 python benchmarks/pieces.py

One process does the same step with all pieces, then without each in turn, again and again. A figure is the median of
the ratios of the processor's seconds within a round, so other work on the machine hardly counts; *nothing* shows what
is left of it. Packing is replaced by
padding, attention by torch's over the same blocks, hashed dropout by torch's (which has one thread only, so on two it
costs twice what is shown), portions of 4,096 tokens by all texts of a batch at once.
"""

from __future__ import annotations

import opera  # noqa: F401 (before torch, which reads how threads are to wait when it is loaded)

# isort: split

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from opera.data import load_data
from opera.encoder import TokenModel
from opera.encoder import _attention as attention
from opera.encoder import _token_model as token_model
from opera.encoder._token_model import Column
from opera.encoder._token_source import token_ids
from opera.retrieval.locate import locate_model

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from page import ROOT, need, table_lines

DATA = "../shared/data/nfcorpus"
PAIRS = 8
PIECES = ("nothing", "packing", "attention", "dropout", "portions")


def torch_attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *mask: Any, **options: Any) -> Any:
    """Attend within each text of a pack by torch's own attention, over the same blocks."""
    bounds = options.get("cu_seq_lens_q")
    if bounds is None:
        return attention.packed_attention(module, query, key, value, *mask, **options)
    parts, mixed = [part[0].transpose(0, 1) for part in (query, key, value)], []
    for block in attention.Pack.of(bounds).blocks():
        starts, lengths = (torch.from_numpy(part).long()[:, None] for part in block)
        steps = torch.arange(int(lengths.max()))
        places, inside = starts + torch.minimum(steps, lengths - 1), steps < lengths
        attended = functional.scaled_dot_product_attention(
            *(part[places].transpose(1, 2) for part in parts),
            None if inside.all() else inside[:, None, None],
            dropout_p=options.get("dropout", 0.0),
        )
        mixed.append(attended.transpose(1, 2)[inside])
    return torch.cat(mixed)[None], None


def switch(piece: str) -> None:
    """Switch all pieces on but one."""
    token_model._may_pack = (lambda *unused: False) if piece == "packing" else MAY_PACK
    token_model.HashedDropout = nn.Dropout if piece == "dropout" else DROPOUT
    token_model.TOKENS_AT_ONCE = 2**62 if piece == "portions" else PORTION
    AttentionInterface.register(attention.NAME, torch_attention if piece == "attention" else attention.packed_attention)


MAY_PACK, DROPOUT, PORTION = token_model._may_pack, token_model.HashedDropout, token_model.TOKENS_AT_ONCE


def steps(model: SentenceTransformer, length: int, pairs: int, rounds: int) -> list[list[Column]]:
    """Queries, and twice as many documents, of each round."""
    data = load_data(ROOT / DATA)
    queries = data.queries.texts(slice(0, pairs * rounds), "text")
    documents = data.corpus.texts(slice(0, 2 * pairs * rounds), "title_text")
    model.max_seq_length = length
    every = [[ids[:length] for ids in token_ids(model, texts)] for texts in (queries, documents)]
    return [[(ids[first::rounds], None) for ids in every] for first in range(rounds)]


def ratios(
    work: Callable[[list[Column]], None], batches: list[list[Column]], pieces: tuple[str, ...]
) -> dict[str, float]:
    """Median ratios of the processor's time without each piece; the first round compiles and does not count."""
    found: dict[str, list[float]] = {piece: [] for piece in pieces}
    for number, batch in enumerate(batches):
        seconds = {}
        for piece in ("", *pieces):
            switch(piece)
            start = time.process_time()
            work(batch)
            seconds[piece] = time.process_time() - start
        for piece in pieces if number else ():
            found[piece].append(seconds[piece] / seconds[""])
    switch("")
    return {piece: median(values) for piece, values in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--lengths", type=int, nargs="*", default=[128, 512])
    given = parser.parse_args()
    need(DATA)
    model = SentenceTransformer(str(locate_model("minilm")), device="cpu")

    def train(batch: list[Column]) -> None:
        with token_model.packing(model.train()):
            embeddings = torch.cat(TokenModel(model).embed_columns(batch))
            (embeddings @ embeddings.T).logsumexp(1).sum().backward()
        model.zero_grad()

    def encode(batch: list[Column]) -> None:
        with token_model.packing(model.eval()), torch.no_grad():
            TokenModel(model).embed_columns(batch)

    columns = {}
    for length in given.lengths:
        batches = steps(model, length, given.pairs, given.rounds + 1)
        columns[f"training, {length} tokens"] = ratios(train, batches, PIECES)
        columns[f"encoding, {length} tokens"] = ratios(encode, batches, PIECES[:3])
        print(columns, flush=True)
    rows = [
        [piece, *(f"{found[piece]:.2f}" if piece in found else "" for found in columns.values())] for piece in PIECES
    ]
    print(table_lines(["without", *columns], rows))


if __name__ == "__main__":
    main()
