"""Write a transformer as an ONNX file, and an ONNX file with weights of 8 bits.

sentence-transformers exports through optimum-onnx, which no release of it lets be installed beside transformers 5. So
torch writes the file here, with the names of inputs and outputs that sentence-transformers' ONNX backend and
text-embeddings-inference read.
"""

from __future__ import annotations

import logging
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from opera.core.errors import ModelError
from opera.core.reading import read_text
from opera.core.terminal import shortened

ONNX_FOLDER = "onnx"
ONNX_FILE = "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "last_hidden_state"
OPSET = 18
MOST_IN_ONE_FILE = 2_000_000_000
"""Bytes: a protobuf holds no more than 2 GiB, and the graph needs some of them."""
EXAMPLE = ("a text", "a longer text, so that the other one is padded")


class _HiddenStates(torch.nn.Module):
    """The transformer with the arguments and the result that an ONNX graph has."""

    def __init__(self, transformer: torch.nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the last hidden states, float32 ``[batch, tokens, dimension]``."""
        given = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        states = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **given
        )
        return states.last_hidden_state  # type: ignore[no-any-return]


def write_onnx(model: SentenceTransformer, file: Path) -> None:
    """Write the transformer of a model, on the CPU in fp32, as an ONNX file; batch and length are free.

    Weights of more than 2 GB stand beside it, in ``NAME.onnx_data``.

    Raises:
        ModelError: if torch cannot turn the transformer into a graph.
    """
    import onnx

    features = model[0].preprocess(list(EXAMPLE))
    names = [name for name in INPUTS if name in features]
    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("sequence")
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                _HiddenStates(model[0].auto_model).eval(),
                tuple(features[name] for name in names),
                input_names=names,
                output_names=[OUTPUT],
                dynamic_shapes={name: {0: batch, 1: tokens} for name in names},
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            assert program is not None
        except Exception as error:  # the exporter raises many types; all mean that it does not know this transformer
            reason = shortened((str(error).strip().splitlines() or [type(error).__name__])[0])
            kind = type(model[0].auto_model).__name__
            raise ModelError(
                f"--onnx: torch cannot write a {kind} as an ONNX graph: {reason}"
            ) from error
    weights = sum(
        parameter.numel() * parameter.element_size()
        for parameter in model[0].auto_model.parameters()
    )
    graph = program.model_proto
    _forget_places(graph)
    onnx.save_model(
        graph,
        str(file),
        save_as_external_data=weights > MOST_IN_ONE_FILE,
        location=f"{file.name}_data",
    )


def write_int8(source: Path, file: Path, reduced: bool) -> None:
    """Write an ONNX file with weights of 8 bits, a scale per channel; activations are quantised as they come.

    Args:
        source: the ONNX file with weights of 32 bits.
        file: where to write.
        reduced: whether weights take 7 bits, for processors whose 8-bit products overflow.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]

    with _quiet():
        quantize_dynamic(
            source,
            file,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=reduced,
            use_external_data_format=source.with_name(f"{source.name}_data").exists(),
        )


def processor_kind() -> str:
    """The kind of this processor, in the names that sentence-transformers gives quantised files.

    ``arm64``, ``avx512_vnni`` (multiplies 8 bits without overflow), or ``avx2`` for every other.
    """
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    try:
        flags = read_text(Path("/proc/cpuinfo"))
    except (OSError, ValueError):
        flags = ""
    return "avx512_vnni" if "avx512_vnni" in flags or "avx_vnni" in flags else "avx2"


def int8_name(kind: str) -> str:
    """Name the file of a processor's kind: ``model_qint8_avx512_vnni.onnx``."""
    return f"model_qint8_{kind}.onnx"


def _forget_places(graph: Any) -> None:
    """Remove the lines of source, in files of this machine, that torch notes beside each node of a graph."""
    for part in (
        graph,
        graph.graph,
        *graph.graph.node,
        *graph.graph.value_info,
        *graph.graph.initializer,
    ):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the exporters say on the way; what they cannot do, they raise."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
