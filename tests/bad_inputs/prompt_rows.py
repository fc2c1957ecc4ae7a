"""Prompts that cannot be, at every door that takes one, and backbones that are not what they are called."""

from __future__ import annotations

from pathlib import Path

from backbones import write_backbone
from bad_inputs.table import Bad, Make, matching, with_run, write

DOORS = {
    "train": "train data --model model --out run --set query_prompt=PROMPT",
    "evaluate": "evaluate data --model model --query-prompt PROMPT",
    "search": "search data words --model model --query-prompt PROMPT",
    "score": "score data --model model --out x.tsv --query-prompt PROMPT",
    "mine": "mine data --model model --range 1:5 --out x.tsv --query-prompt PROMPT",
    "inspect": "inspect data --model model --query-prompt PROMPT",
}
WRONG = {
    "bytes that are no text": ("caf\udce9", "query_prompt: must be text in UTF-8, without NUL, got 'caf\\udce9'"),
    "10,001 characters": (
        "x" * 10_001,
        f"query_prompt: must have at most 10,000 characters, got '{'x' * 49}…{'x' * 48}'",
    ),
}
LONG = "common1 " * 60
NO_ROOM = (
    "query_prompt: has 48 tokens, and max_query_length=48 leaves no room for the query; raise max_query_length, or "
)
POOLING = (
    "bge-m3: has no modules.json, which says how tokens are pooled: sentence-transformers takes mean, and models of "
    "the family bge-m3 need cls (model card of BAAI/bge-m3); use the model's whole folder, with modules.json, or save "
    "it with sentence_transformers as the modules Transformer and Pooling(dimension, 'cls')"
)


def backbone(name: str) -> Make:
    """Write a tiny transformer to ``whole``, and to ``NAME`` without its modules.json."""
    return lambda folder: write_backbone(name, Path(folder, "whole")).with_name("plain").rename(Path(folder, name))


ROWS = [
    Bad(
        f"prompt: {wrong}, for {door}",
        [prompt if word == "PROMPT" else word.replace("PROMPT", prompt) for word in command.split()],
        message,
    )
    for door, command in DOORS.items()
    for wrong, (prompt, message) in WRONG.items()
] + [
    Bad(
        "prompt: a number in a recipe",
        "train data --model model --config r.yaml --out run",
        "--config r.yaml: document_prompt: must be text, got 5",
        write("r.yaml", "document_prompt: 5"),
    ),
    Bad(
        "prompt: without quotes in a recipe",
        "train data --model model --config r.yaml --out run",
        "--config r.yaml: not YAML (line 1: mapping values are not allowed here)",
        write("r.yaml", "query_prompt: query: "),
    ),
    Bad(
        "prompt: another one when a run is resumed",
        "train data --model model --out run --resume --steps 4 --batch-size 4 --set refit=false --set query_prompt=a",
        matching(
            "--resume run: was started differently; use the same settings, or --overwrite to start again:\n"
            "model_fingerprint: the run has '[0-9a-f]{64}', this call '[0-9a-f]{64}'\n"
            "query_prompt: the run has None, this call 'a'"
        ),
        with_run,
    ),
    Bad(
        "prompt: longer than a query",
        ["train", "data", "--model", "whole", "--out", "run", "--set", f"query_prompt={LONG}"],
        f"{NO_ROOM}shorten the prompt",
        backbone("bge"),
    ),
    Bad(
        "prompt: longer than a query, for evaluate",
        ["evaluate", "data", "--model", "whole", "--query-prompt", LONG],
        f"{NO_ROOM}shorten the prompt",
        backbone("bge"),
    ),
    Bad(
        "prompt: for vectors from files",
        "train data --out run --query-vectors q.npy --document-vectors d.npy --set query_prompt=a",
        "query_prompt=a: with adapter=query vectors come from files; leave the setting out",
    ),
    Bad(
        "backbone: pooled otherwise than its folder lets guess",
        "evaluate data --model bge-m3",
        POOLING,
        backbone("bge-m3"),
    ),
    Bad(
        "backbone: gradients of a table of tokens checkpointed",
        "train data --model model --out run --set gradient_checkpointing=true",
        "gradient_checkpointing=true: StaticEmbedding cannot; leave the setting out",
    ),
]
