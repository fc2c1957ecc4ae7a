"""An exported ONNX file in use: sentence-transformers tokenises, pools and normalises; onnxruntime runs the layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from transformers.modeling_outputs import BaseModelOutput

from opera.retrieval.models import load_model


class OnnxTransformer(torch.nn.Module):
    """Stands where a SentenceTransformer has its transformer, and computes with onnxruntime on the CPU.

    Args:
        file: the ONNX file.
        config: the transformer's configuration.
    """

    def __init__(self, file: Path, config: Any) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = (
            torch.get_num_threads()
        )  # as many as torch, which it is compared with
        options.log_severity_level = 3  # errors
        self.config = config
        self.session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.names = [given.name for given in self.session.get_inputs()]

    def forward(self, **features: Any) -> BaseModelOutput:
        """Return the last hidden states: float32 ``[batch, tokens, dimension]``."""
        one_segment = torch.zeros_like(features["input_ids"])
        given = {
            "token_type_ids": one_segment,
            **features,
        }  # a text of one segment may come without them
        (states,) = self.session.run(None, {name: given[name].numpy() for name in self.names})
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states))


def load_onnx(folder: Path, file: Path) -> SentenceTransformer:
    """Load an exported folder on the CPU, with one of its ONNX files in place of the transformer."""
    model = load_model(folder, "cpu")
    model[0].model = OnnxTransformer(file, model[0].auto_model.config)
    return model
