"""Train with FlagEmbedding, in its own environment: ``python train_flagembedding.py JOB.json``; see rivals.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from FlagEmbedding.abc.finetune.embedder import (
    AbsEmbedderDataArguments,
    AbsEmbedderModelArguments,
    AbsEmbedderTrainingArguments,
)
from FlagEmbedding.finetune.embedder.encoder_only.base import EncoderOnlyEmbedderRunner


def main() -> None:
    """Train the model of the job on its rows, and save it for sentence-transformers."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    runner = EncoderOnlyEmbedderRunner(
        model_args=AbsEmbedderModelArguments(model_name_or_path=job["model"]),
        data_args=AbsEmbedderDataArguments(
            train_data=[job["rows"]],
            cache_path=job["folder"] + "/cache",
            train_group_size=2,
            query_max_len=job["tokens"],
            passage_max_len=job["tokens"],
        ),
        training_args=AbsEmbedderTrainingArguments(
            output_dir=job["folder"],
            max_steps=job["steps"],
            per_device_train_batch_size=job["batch"],
            learning_rate=job["lr"],
            warmup_steps=0.1,
            temperature=0.02,
            sentence_pooling_method="mean",
            normalize_embeddings=True,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=job["seed"],
        ),
    )
    runner.trainer.train()
    runner.trainer.save_model()


if __name__ == "__main__":
    main()
