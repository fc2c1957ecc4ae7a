"""Is a model trained in one's own sentence-transformers script as good as one of ``opera train``?

    python studies/own_script.py nfcorpus --seeds 0,1,2
    python studies/own_script.py scifact --noise random:0.3 --method denoise --batch-size 32 --steps 123 --seeds 0,1,2,3

Trains the same method both ways, with the same steps, batch, learning rate and temperature, without mask, negatives
and guard, and measures both on test. The script runs the trainer and loss of sentence-transformers over two columns.
Two more trainings are the script without OPERA, with the trainer's default sampler and with NO_DUPLICATES. False pairs
may be added, as studies/false_labels.py does. Prints the mean of each, and the paired test of the first two over the
test queries, each one's difference averaged over the seeds. Reads ``../shared``, and stops with a message if it is
absent.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import opera
from false_labels import DATA, SETS, UNTRAINED, noisy
from opera.experiments.analysis.significance import paired_test
from page import ROOT, need

MEASURE = "nDCG@10"
TEMPERATURE = 0.07


def in_opera(data: opera.RetrievalData, options: argparse.Namespace, seed: int, folder: Path) -> None:
    """Train with ``opera.adapt``, into ``folder/model``."""
    opera.adapt(
        data,
        model=options.model,
        out=folder,
        method=options.method,
        seed=seed,
        max_steps=options.steps,
        batch_size=options.batch_size,
        lr=options.lr,
        temperature=TEMPERATURE,
        warmup_ratio=0.0,
        train_group_size=1,
        mask_known_positives=False,
        guard=False,
    )


def in_script(
    data: opera.RetrievalData,
    options: argparse.Namespace,
    seed: int,
    folder: Path,
    sampler: BatchSamplers | None = None,
) -> None:
    """Train with sentence-transformers' trainer, into ``folder/model``; with one of its own samplers if given."""
    train = data.training_split()
    queries = data.queries.texts(train.query_rows[train.query_index], "text")
    dataset = Dataset.from_dict({"anchor": queries, "positive": data.corpus.texts(train.doc_rows)})
    model = SentenceTransformer(options.model, device="cpu")
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "checkpoints"),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.lr,
        seed=seed,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    loss, callbacks = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE), []
    if sampler is not None:
        args.batch_sampler = sampler
    else:
        pruning = opera.PairPruning(model, dataset, method=options.method, args=args)
        args.batch_sampler = pruning.sampler
        loss, callbacks = pruning.watch(loss), [pruning.callback]
    SentenceTransformerTrainer(model=model, args=args, train_dataset=dataset, loss=loss, callbacks=callbacks).train()
    model.save_pretrained(str(folder / "model"), create_model_card=False)


WAYS = {
    "opera train": in_opera,
    "script": in_script,
    "default sampler": partial(in_script, sampler=BatchSamplers.BATCH_SAMPLER),
    "NO_DUPLICATES": partial(in_script, sampler=BatchSamplers.NO_DUPLICATES),
}


def main() -> None:
    """Train each way with each seed, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=SETS)
    parser.add_argument("--noise", default="clean")
    parser.add_argument("--model", default=str(ROOT / UNTRAINED))
    parser.add_argument("--method", default="dp")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-2)
    options = parser.parse_args()
    need(UNTRAINED, f"{DATA}/{options.data}")
    differences = []
    for seed in map(int, options.seeds.split(",")):
        data, measured = noisy(options.data, options.noise, seed), {}
        for name, train in WAYS.items():
            with TemporaryDirectory() as folder:
                torch.manual_seed(seed)
                train(data, options, seed, Path(folder, "run"))
                result = opera.evaluate(data, model=str(Path(folder, "run", "model")), measures=[MEASURE])
            measured[name] = result
        means = {name: result.measures[MEASURE] for name, result in measured.items()}
        print(f"seed {seed}: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()), flush=True)
        differences.append(measured["script"].per_query[MEASURE] - measured["opera train"].per_query[MEASURE])
    test = paired_test(np.mean(differences, axis=0))
    print(
        f"script minus opera train: {test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}] over {test.queries} "
        f"queries, p = {test.t_test:.2f}"
    )


if __name__ == "__main__":
    main()
