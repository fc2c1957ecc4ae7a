"""A user's script of sentence-transformers, in a function."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses

import opera
from opera.retrieval.models import set_dropout

ROWS = 48


def pairs_of(data: opera.RetrievalData, rows: int = ROWS) -> Dataset:
    """The training pairs of a data set, as a user would have them; every fifth, so that they are of many queries."""
    train = data.training_split()
    every_fifth = slice(0, rows * 5, 5)
    query_rows = train.query_rows[train.query_index][every_fifth]
    return Dataset.from_dict(
        {"question": data.queries.texts(query_rows, "text"), "answer": data.corpus.texts(train.doc_rows[every_fifth])}
    )


SYMMETRIC = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
LOSSES = {
    "mnrl": lambda model, guide: losses.MultipleNegativesRankingLoss(model),
    "symmetric": lambda model, guide: losses.MultipleNegativesRankingLoss(model, **SYMMETRIC),
    "cached": lambda model, guide: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=3),
    "cached symmetric": lambda model, guide: losses.CachedMultipleNegativesRankingLoss(
        model, mini_batch_size=3, **SYMMETRIC
    ),
    "gist": lambda model, guide: losses.GISTEmbedLoss(model, guide, temperature=0.05),
    "cached gist": lambda model, guide: losses.CachedGISTEmbedLoss(model, guide, temperature=0.05, mini_batch_size=3),
}
WEIGHABLE = ("mnrl",)
"""Those whose pairs can be weighed."""


def make_loss(kind: str, model: SentenceTransformer, guide: SentenceTransformer, sizes: bool = False) -> Any:
    """Make a loss, in a Matryoshka loss if it is of several sizes."""
    loss = LOSSES[kind](model, guide)
    return losses.MatryoshkaLoss(model, loss, [32, 8, 4]) if sizes else loss


def arguments(out: Path, **changed: Any) -> SentenceTransformerTrainingArguments:
    """The arguments of a short training."""
    values = {
        "output_dir": str(out),
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "learning_rate": 0.05,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return SentenceTransformerTrainingArguments(**{**values, **changed})


def open_model(folder: Path) -> SentenceTransformer:
    """Load a model anew, without dropout."""
    model = SentenceTransformer(str(folder), device="cpu")
    if any(isinstance(module, torch.nn.Dropout) for module in model.modules()):
        set_dropout(model, 0.0)
    return model


def trainer_of(pruning: opera.PairPruning, args: Any, loss: Any, **more: Any) -> SentenceTransformerTrainer:
    """Put the trainer together as the documentation says."""
    values = {"train_dataset": pruning.dataset, "loss": pruning.watch(loss), "callbacks": [pruning.callback], **more}
    return SentenceTransformerTrainer(model=pruning.model, args=args, **values)


def weights_of(model: SentenceTransformer) -> list[bytes]:
    """The bytes of every weight."""
    return [value.detach().numpy().tobytes() for value in model.state_dict().values()]


def draws_of(pruning: opera.PairPruning) -> list[list[int]]:
    """The pairs of each data set that were trained, in order."""
    return [np.concatenate(part.sampled[: part.trained_steps]).tolist() for part in pruning.samplers]


def train_script(
    dataset: Any,
    folder: Path,
    out: Path,
    method: str = "dp",
    *,
    loss: Any = losses.MultipleNegativesRankingLoss,
    stop: int | None = None,
    resume: bool = False,
    **changed: Any,
) -> tuple[opera.PairPruning, SentenceTransformerTrainer]:
    """Train a model of a folder; ``stop`` breaks off in every process when that step's checkpoint is saved."""
    args, model = arguments(out, **{"save_strategy": "steps", "save_steps": stop or 5, **changed}), open_model(folder)
    pruning = opera.PairPruning(model, dataset, method, args=args)
    trainer = trainer_of(pruning, args, loss)
    save = pruning.callback.on_save

    def broken(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        save(args, state, control, **kwargs)
        control.should_training_stop |= state.global_step == stop

    pruning.callback.on_save = broken
    trainer.train(resume_from_checkpoint=True if resume else None)
    return pruning, trainer
