"""The work of a job, by FlagEmbedding: the runner of its base encoders, or ``FlagModel.encode``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from FlagEmbedding import FlagModel
from FlagEmbedding.abc.finetune.embedder import (
    AbsEmbedderDataArguments,
    AbsEmbedderModelArguments,
    AbsEmbedderTrainingArguments,
)
from FlagEmbedding.finetune.embedder.encoder_only.base import EncoderOnlyEmbedderRunner
from stopwatch import Stopwatch
from torch.utils.data import SequentialSampler
from turns import Turns, job


def train(work: dict[str, Any], turns: Turns) -> None:
    """Train on the rows of the job, in their order, with in-batch negatives."""
    runner = EncoderOnlyEmbedderRunner(
        model_args=AbsEmbedderModelArguments(model_name_or_path=work["model"]),
        data_args=AbsEmbedderDataArguments(
            train_data=[work["rows"]],
            cache_path=work["folder"] + "/cache",
            train_group_size=2,
            query_max_len=128,
            passage_max_len=work["length"],
        ),
        training_args=AbsEmbedderTrainingArguments(
            output_dir=work["folder"] + "/out",
            max_steps=work["steps"],
            per_device_train_batch_size=work["batch_size"],
            learning_rate=work["learning_rate"],
            temperature=work["temperature"],
            sentence_pooling_method="mean",
            normalize_embeddings=True,
            bf16=work["precision"] == "bf16",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
    )
    runner.trainer._get_train_sampler = lambda *unused: SequentialSampler(runner.train_dataset)
    runner.trainer.add_callback(Stopwatch(turns))
    runner.trainer.train()


def encode(work: dict[str, Any], turns: Turns) -> None:
    """Encode the texts of the job; on a CPU the library computes in fp32."""
    texts = json.loads(Path(work["texts"]).read_text())
    model = FlagModel(
        work["model"],
        use_fp16=False,
        devices="cpu",
        pooling_method="mean",
        batch_size=32,
        passage_max_length=work["length"],
    )
    model.encode_corpus(texts[:64])
    turns.ready()
    while True:
        model.encode_corpus(texts)
        turns.done()


if __name__ == "__main__":
    {"train": train, "encode": encode}[job()["task"]](job(), Turns())
