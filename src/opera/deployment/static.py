"""A static model distilled from a trained one: one vector per token, looked up and averaged; no
transformer runs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

from opera.core.errors import ModelError

DIMENSIONS = 256
"""Of the distilled vectors, by a principal component analysis; fewer where the model has fewer."""
POOLING = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""sentence-transformers' kinds of pooling, in model2vec's words."""


def write_static(model: SentenceTransformer, folder: Path) -> None:
    """Distil a static model into a sentence-transformers folder: each token of the vocabulary is
    embedded by itself, then the vectors are reduced.

    Prompts are left behind: a text's vector is a mean over tokens, so a prompt would only shift all
    of them.

    Raises:
        ModelError: if model2vec cannot distil this model.
    """
    pooling = next(
        (module.pooling_mode for module in model if type(module).__name__ == "Pooling"), "mean"
    )
    if pooling not in POOLING:
        raise ModelError(f"--static: model2vec does not distil models with {pooling} pooling")
    dimension = int(model[0].auto_model.config.hidden_size)
    with tempfile.TemporaryDirectory() as whole:
        model[0].save(whole)
        embedding = StaticEmbedding.from_distillation(
            whole, device="cpu", pca_dims=min(DIMENSIONS, dimension), pooling=POOLING[pooling]
        )
    static = SentenceTransformer(modules=[embedding, Normalize()], device="cpu")
    static.model_card_data.local_files_only = True  # saving the model must not query the hub
    static.save_pretrained(str(folder), create_model_card=False)
