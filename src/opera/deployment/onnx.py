"""Write a transformer as an ONNX file with 32-bit or 8-bit weights, and load it again.

sentence-transformers exports through optimum-onnx, which does not support transformers 5. So torch
writes the file here. The names of inputs and outputs are those that sentence-transformers' ONNX
backend and text-embeddings-inference expect.

sentence-transformers 6 uses new names for its modules and the pooling. sentence-transformers 5 (the
newest that works with optimum-onnx) and text-embeddings-inference do not know them. All three read
the names that this module writes.
"""

from __future__ import annotations

import json
import logging
import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from transformers.modeling_outputs import BaseModelOutput

from opera.core.errors import ModelError
from opera.core.files import read_json
from opera.core.terminal import first_line_of
from opera.retrieval.models import lengths_of, load_model
from opera.retrieval.prompts import ROLES

ONNX_FOLDER = "onnx"
ONNX_FILE = "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "last_hidden_state"
MOST_IN_ONE_FILE = 2_000_000_000
"""Bytes of weights: a protobuf holds at most 2 GiB, including the graph."""
EXAMPLE = ("a text", "a longer text, so that the first one is padded")


MODULES_FILE = "modules.json"
TOKENIZER_FILE = "tokenizer_config.json"
POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""Kinds of pooling in sentence-transformers 6, and the equivalent flags of version 5."""
NO_LIMIT = 1_000_000
"""Tokenizers without a limit have a value above this."""
KNOWN_EVERYWHERE = ("Transformer", "Pooling", "Normalize", "Dense")


class _HiddenStates(torch.nn.Module):
    """A transformer with the inputs and the output of the ONNX graph."""

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
        inputs = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        states = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **inputs
        )
        return states.last_hidden_state


def write_onnx(model: SentenceTransformer, file: Path) -> None:
    """Write the transformer of a model as an fp32 ONNX file with variable batch and length.

    The model must be on the CPU. Weights of more than 2 GB go into ``NAME.onnx_data``.

    Raises:
        ModelError: if torch cannot convert the transformer to a graph.
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
                opset_version=18,
                dynamo=True,
                verbose=False,
            )
            assert program is not None
        except Exception as error:  # torch raises many types for an unsupported transformer
            kind = type(model[0].auto_model).__name__
            raise ModelError(
                f"--onnx: torch cannot write a {kind} as an ONNX graph: {first_line_of(error)}"
            ) from error
    weights = sum(
        weight.numel() * weight.element_size() for weight in model[0].auto_model.parameters()
    )
    graph = program.model_proto
    main = graph.graph
    for message in (graph, main, *main.node, *main.value_info, *main.initializer):
        message.ClearField("metadata_props")  # torch stores source lines and paths of this machine
        message.ClearField("doc_string")
    onnx.save_model(
        graph,
        str(file),
        save_as_external_data=weights > MOST_IN_ONE_FILE,
        location=f"{file.name}_data",
    )


def write_int8(source: Path, file: Path, reduced: bool) -> None:
    """Write an ONNX file with 8-bit weights, one scale per channel, and dynamic quantisation.

    Args:
        source: the ONNX file with 32-bit weights.
        file: the file to write.
        reduced: use only 7 bits, for processors whose 8-bit products overflow.
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


def instruction_set() -> str:
    """The instruction set of this processor, as sentence-transformers names it in quantised files.

    ``arm64``, ``avx512_vnni`` (8-bit products do not overflow), or ``avx2`` for all others.
    """
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(errors="replace") if cpuinfo.is_file() else ""
    return "avx512_vnni" if "avx512_vnni" in flags or "avx_vnni" in flags else "avx2"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings and logs of the exporters; they raise real errors."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(action="ignore"):
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)


class OnnxTransformer(torch.nn.Module):
    """Replaces the transformer of a SentenceTransformer; computes with onnxruntime on the CPU.

    Args:
        file: the ONNX file.
        config: the transformer's configuration.
    """

    def __init__(self, file: Path, config: Any) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()  # for a fair comparison with torch
        options.log_severity_level = 3  # errors only
        self.config = config
        self.session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.names = [graph_input.name for graph_input in self.session.get_inputs()]

    def forward(self, **features: Any) -> BaseModelOutput:
        """Return the last hidden states: float32 ``[batch, tokens, dimension]``."""
        one_segment = torch.zeros_like(features["input_ids"])
        inputs = {"token_type_ids": one_segment, **features}  # tokenizers may omit token_type_ids
        (states,) = self.session.run(None, {name: inputs[name].numpy() for name in self.names})
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states))


def load_onnx(folder: Path, file: Path) -> SentenceTransformer:
    """Load an exported folder on the CPU, with one of its ONNX files as the transformer."""
    model = load_model(folder, "cpu")
    model[0].model = OnnxTransformer(file, model[0].auto_model.config)
    return model


def save_portable(model: SentenceTransformer, folder: Path) -> None:
    """Save a model without a card, with names that all libraries read."""
    model.save_pretrained(str(folder), create_model_card=False)
    modules = read_json(folder / MODULES_FILE)
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        if kind in KNOWN_EVERYWHERE:
            module["type"] = f"sentence_transformers.models.{kind}"
        if kind == "Pooling":
            _rewrite(folder / module["path"] / "config.json", _pooling_flags)
    _rewrite(folder / MODULES_FILE, lambda _: modules)
    if (folder / TOKENIZER_FILE).is_file():
        _rewrite(folder / TOKENIZER_FILE, _known_tokenizer)
    lengths = [length for length in lengths_of(model).values() if length is not None]
    longest = max(lengths) if len(lengths) == len(ROLES) else model.max_seq_length
    if longest is not None and longest < NO_LIMIT:  # servers have one limit for all texts
        _rewrite(
            folder / "sentence_bert_config.json",
            lambda values: {**values, "max_seq_length": longest},
        )


def _rewrite(file: Path, change: Callable[[Any], Any]) -> None:
    file.write_text(json.dumps(change(read_json(file)), indent=2) + "\n", encoding="utf-8")


def _pooling_flags(values: dict[str, Any]) -> dict[str, Any]:
    """Convert names of pooling modes to the older ``pooling_mode_*`` flags."""
    modes = values["pooling_mode"]
    used = modes if isinstance(modes, list) else [modes]
    return {
        "word_embedding_dimension": values["embedding_dimension"],
        **{flag: mode in used for mode, flag in POOLING_FLAGS.items()},
        "include_prompt": values["include_prompt"],
    }


def _known_tokenizer(values: dict[str, Any]) -> dict[str, Any]:
    """Use transformers 4's class name for a plain fast tokenizer; transformers 5 reads it too."""
    is_plain = values.get("tokenizer_class") == "TokenizersBackend"
    return {**values, "tokenizer_class": "PreTrainedTokenizerFast"} if is_plain else values
