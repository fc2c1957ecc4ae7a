"""Which defaults suit this processor: the only place that decides by kind of processor.

The kind alone decides, so the same command gives the same bytes on all processors of a kind.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from opera.core.environment import PLAIN, is_plain
from opera.core.terminal import log

Kind = Literal["amx", "avx512_bf16", "avx2", "plain"]


class Defaults(NamedTuple):
    """The defaults of a kind of processor.

    Attributes:
        packs: whether transformers read texts without padding, with OPERA's attention and dropout.
        precision: what ``auto`` means for a transformer.
        torch_attention: the precisions for which torch's attention without dropout is faster.
        product_library: the library whose float32 product is faster in one thread.
    """

    packs: bool
    precision: Literal["bf16", "fp32"]
    torch_attention: tuple[Literal["bf16", "fp32"], ...]
    product_library: Literal["numpy", "torch"]


DEFAULTS: dict[Kind, Defaults] = {
    # benchmarks/results/amx.json: an Intel Xeon
    "amx": Defaults(True, "bf16", ("bf16", "fp32"), "torch"),
    # not measured: as AMX, but torch has no fast attention in bfloat16 without AMX. On an AMD,
    # FAISS searched faster than torch; FAISS multiplies with OpenBLAS, as NumPy does.
    "avx512_bf16": Defaults(True, "bf16", ("fp32",), "numpy"),
    # benchmarks/results/avx2.json: an AMD EPYC
    "avx2": Defaults(True, "fp32", ("fp32",), "numpy"),
    # not measured: other processors, such as ARM
    "plain": Defaults(False, "fp32", ("fp32",), "torch"),
}


def processor_kind() -> Kind:
    """Return the kind of this processor; ``plain`` if OPERA does not know it."""
    import torch  # here, since torch takes long to import

    if torch.cpu._is_amx_tile_supported():
        return "amx"
    if torch.cpu._is_avx512_bf16_supported():
        return "avx512_bf16"
    return "avx2" if torch.cpu._is_avx2_supported() else "plain"


def processor_defaults() -> Defaults:
    """Return the defaults of this processor."""
    kind = processor_kind()
    if kind == "plain":
        _log_plain()
    return DEFAULTS[kind]


def torch_computes_all() -> bool:
    """Whether torch alone computes transformers on the CPU: by ``OPERA_PLAIN`` or by default."""
    return is_plain() or not processor_defaults().packs


@cache
def _log_plain() -> None:
    log.info("note: OPERA does not know this processor, so it computes as with %s=1", PLAIN)
