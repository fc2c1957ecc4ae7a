"""Make torch report the features of another processor, in this process and in the processes that it starts.

The environment variable ``OPERA_TEST_PROCESSOR`` names the processor. Python imports this file from ``PYTHONPATH`` when
it starts. Nothing is faster or slower for it: torch computes in bfloat16 on every processor.
"""

import os
import platform
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

BF16 = ("avx512_bf16", "amx_tile", "amx_bf16", "amx_fp16")
"""The features that OPERA and its libraries ask for."""
PROCESSORS = {
    "avx2": ((), {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "avx512_bf16": (BF16[:1], {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
    "amx": (BF16[:3], {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX"}),
}
"""Of each kind of processor: the features, and variables that limit the kernels of torch and oneDNN. Without a limit
torch takes the best kernels that the real processor can run."""

features, limits = PROCESSORS[os.environ["OPERA_TEST_PROCESSOR"]]


class TorchCpu:
    """Changes ``torch.cpu`` after its import; a program that does not need torch still starts without it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find ``torch.cpu`` as Python does."""
        if name != "torch.cpu":
            return None
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            real = dict(module.get_capabilities())
            module.get_capabilities = lambda: real | {"avx2": True} | {name: name in features for name in BF16}
            if real.get("avx512_f") and not features:
                # torch sees AVX-512 and would ask oneDNN for products in bfloat16, which the limit forbids
                sys.modules["torch"]._C._set_mkldnn_enabled(False)

        spec.loader.exec_module = execute_and_change
        return spec


if "torch" in sys.modules:
    raise ImportError("torch was imported before it could be told which processor to report")
if platform.machine().lower() in ("x86_64", "amd64"):  # others have no such kernels
    os.environ.update(limits)
sys.meta_path.insert(0, TorchCpu)
