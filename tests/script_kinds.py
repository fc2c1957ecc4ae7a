"""Tiny models of each kind, and scripts that train them with sentence-transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    MultiVectorEncoder,
    MultiVectorEncoderTrainer,
    MultiVectorEncoderTrainingArguments,
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from sentence_transformers.cross_encoder import losses as reranker
from sentence_transformers.multi_vector_encoder import losses as multi_vector
from sentence_transformers.sparse_encoder import losses as sparse

import opera
from backbones import SIZE, write_reranker
from opera.retrieval.models import set_dropout
from tiny_world import vocabulary


class Kind(NamedTuple):
    """A class of models with its trainer."""

    model: Any
    trainer: Any
    arguments: Any


KINDS = {
    "sparse": Kind(SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments),
    "multi-vector": Kind(MultiVectorEncoder, MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments),
    "reranker": Kind(CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments),
}
SPLADE = {"document_regularizer_weight": 1e-4, "query_regularizer_weight": 1e-4}
SMALL = {"mini_batch_size": 3}
LOSSES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "splade": ("sparse", "splade", lambda m: sparse.SpladeLoss(m, ranking(m), **SPLADE)),
    "cached splade": ("sparse", "splade", lambda m: sparse.CachedSpladeLoss(m, ranking(m), **SPLADE, **SMALL)),
    "csr": ("sparse", "csr", lambda m: sparse.CSRLoss(m)),
    "maxsim": ("multi-vector", "tokens", lambda m: multi_vector.MultiVectorMultipleNegativesRankingLoss(m)),
    "maxsim in blocks": (
        "multi-vector",
        "tokens",
        lambda m: multi_vector.MultiVectorMultipleNegativesRankingLoss(m, score_mini_batch_size=3, **SMALL),
    ),
    "cached maxsim": (
        "multi-vector",
        "tokens",
        lambda m: multi_vector.CachedMultiVectorMultipleNegativesRankingLoss(m, **SMALL),
    ),
    "ranking": ("reranker", "reranker", lambda m: reranker.MultipleNegativesRankingLoss(m)),
    "cached ranking": ("reranker", "reranker", lambda m: reranker.CachedMultipleNegativesRankingLoss(m, **SMALL)),
    "binary": ("reranker", "reranker", lambda m: reranker.BinaryCrossEntropyLoss(m)),
}
"""Each loss with its kind and its model."""


def ranking(model: SparseEncoder, **options: Any) -> Any:
    return sparse.SparseMultipleNegativesRankingLoss(model, **options)


def write_models(folder: Path) -> Path:
    """Write a model of each kind below a folder: BERTs with random weights."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder, SpladePooling
    from transformers import BertConfig, BertForMaskedLM

    write_reranker(folder / "reranker")  # with the tokenizer beside it
    plain = folder / "reranker-plain"
    torch.manual_seed(17)
    size = {**SIZE, "vocab_size": len(vocabulary()), "max_position_embeddings": 48}
    BertForMaskedLM(BertConfig(**size)).save_pretrained(folder / "mlm")
    for file in plain.glob("*token*"):
        (folder / "mlm" / file.name).write_bytes(file.read_bytes())

    def body(**options: Any) -> Any:
        return Transformer(str(folder / "mlm"), max_seq_length=48, **options)

    splade = [body(transformer_task="fill-mask"), SpladePooling()]
    csr = [body(), Pooling(16, "mean"), SparseAutoEncoder(16, hidden_dim=32, k=4, k_aux=8)]
    projection = Dense(16, 8, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
    tokens = [body(), projection, Normalize("token_embeddings"), MultiVectorMask()]
    for name, modules in {"splade": splade, "csr": csr, "tokens": tokens}.items():
        kind = MultiVectorEncoder if name == "tokens" else SparseEncoder
        kind(modules=modules, device="cpu").save_pretrained(str(folder / name), create_model_card=False)
    return folder


def open_kind(folder: Path, loss: str) -> Any:
    """Load the model of a loss anew, without dropout."""
    kind, name, _ = LOSSES[loss]
    model = KINDS[kind].model(str(folder / name), device="cpu")
    set_dropout(model, 0.0)
    return model


def script_arguments(out: Path, loss: str, **changed: Any) -> Any:
    """The arguments of a short training."""
    values = {
        "output_dir": str(out),
        "per_device_train_batch_size": 8,
        "max_steps": 3,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return KINDS[LOSSES[loss][0]].arguments(**{**values, **changed})


def train_kind(
    pruning: opera.PairPruning, args: Any, loss: str, made: Any = None, resume: Any = None, **more: Any
) -> Any:
    """Put the trainer of a kind together, and train."""
    kind, _, make = LOSSES[loss]
    trainer = KINDS[kind].trainer(
        model=pruning.model,
        args=args,
        train_dataset=pruning.dataset,
        loss=pruning.watch(make(pruning.model) if made is None else made),
        callbacks=[pruning.callback, *more.pop("callbacks", [])],
        **more,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer
