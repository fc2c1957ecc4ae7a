"""Peak memory and time of one training step: a batch of 64 at once, and 1,024 through the gradient cache.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/gradient_cache.py --data ../shared/data/nfcorpus

Each batch is trained in a process of its own, whose peak is what the system counted for it; the first line is the model
loaded, with its texts tokenised and nothing trained.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

CASES = ((64, None), (1024, 32))


def main() -> None:
    """Print a line per batch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="data set")
    parser.add_argument("--model", default="minilm", help="model")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per text, at most")
    parser.add_argument("--case", help="BATCH:TEXTS, in this process")
    given = parser.parse_args()
    if given.case:
        step(given.data, given.model, given.tokens, *map(int, given.case.split(":")))
        return
    print(f"{'batch':>6} {'gradient_cache':>15} {'peak MB':>9} {'seconds':>8}")
    for batch, texts in ((0, None), *CASES):
        case = ["--case", f"{batch}:{texts or 0}", "--tokens", str(given.tokens)]
        subprocess.run([sys.executable, __file__, "--data", given.data, "--model", given.model, *case], check=True)


def step(source: str, model_source: str, tokens: int, batch: int, texts: int) -> None:
    """Train one step, and print what it took."""
    import torch

    from opera.config.training import TrainSettings
    from opera.data import load_data
    from opera.methods import METHODS, Plan
    from opera.retrieval.models import load_model
    from opera.training.build import PairDataset
    from opera.training.documents import KnownPositives
    from opera.training.loss import InfoNCELoss
    from opera.training.sampler import DataSetSampler, Sampler

    data, model = load_data(source), load_model(model_source, "cpu").train()
    model.max_seq_length = tokens
    training, size = data.training_split(), batch or 64
    pairs = training.pairs()
    method = METHODS["ft"](pairs, Plan(0, 1, size), None)
    sampler = Sampler([DataSetSampler(method)], pairs, method.plan, size)
    documents = partial(data.corpus.texts, corpus_text="title_text")
    dataset = PairDataset(training.query_rows, 0, partial(data.queries.texts, corpus_text="text"), documents)
    drawn, items = dataset.__getitems__(next(iter(sampler)))
    features = [model.preprocess([item[name] for item in items]) for name in ("anchor", "positive")]
    known = KnownPositives.of(data, training.query_rows, pairs)
    training_set = SimpleNamespace(negatives=SimpleNamespace(known=known, kind="random"))
    settings = TrainSettings.parse({"temperature": 0.05, "gradient_cache": texts or None})
    loss = InfoNCELoss(model, training_set, sampler, settings)
    start = time.perf_counter()
    if batch:
        loss(features, drawn).backward()
        torch.optim.AdamW(model.parameters(), lr=1e-5).step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{batch or 'none':>6} {texts or 'no':>15} {peak:9.0f} {time.perf_counter() - start:8.1f}", flush=True)


if __name__ == "__main__":
    main()
