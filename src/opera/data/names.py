"""Names of published data sets: how they start, and the short ones."""

from __future__ import annotations

PUBLISHED = ("paper:", "irds:", "hf:")
"""How the name of a published data set starts."""
SPLIT_NAMES = {"train": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev", "test": "test"}
"""What others call the splits, and our names of them."""


def published_name(source: str) -> str | None:
    """Return the short name of ``paper:NAME``, ``irds:ID`` or ``hf:OWNER/NAME``; ``None`` for any other source.

    The name of ``irds:antique/train`` is ``antique``: that of a split says little.
    """
    kind = next((start for start in PUBLISHED if source.startswith(start)), None)
    if kind is None:
        return None
    name = source.removeprefix(kind).rstrip("/")
    if kind == "irds:":
        parts = name.split("/")
        name = ([part for part in parts if part not in SPLIT_NAMES] or parts)[-1]
    name = name.rpartition("/")[2]
    return source if name in ("", ".", "..") else name
