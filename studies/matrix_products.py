"""Do MKL's matrix products agree between processors? Prints a table.

    .venv/bin/python studies/matrix_products.py --qemu /usr/bin/qemu-x86_64

Each of MKL's kernels multiplies the shapes of a small transformer on this processor and on two that QEMU (7.2 or newer)
emulates. To a library these are real: it asks the processor for its maker and features, and gets their answers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from opera.core.environment import KERNELS
from page import table_lines

PROCESSORS = {"Intel Haswell": "Haswell-noTSX", "AMD EPYC of 2017": "EPYC"}
CHOICES = ("AUTO", "AVX2", "COMPATIBLE")
MULTIPLY = """
import hashlib
import torch
rng = torch.Generator().manual_seed(0)
shapes = [(16, 384, 384), (40, 384, 1536), (33, 1536, 384), (1, 384, 500), (384, 64, 384), (8, 999, 8)]
for rows, inner, columns in shapes:
    a, b = torch.randn(rows, inner, generator=rng), torch.randn(inner, columns, generator=rng)
    for product in (a @ b, a @ b.T.contiguous().T):
        print(hashlib.sha256(product.numpy().tobytes()).hexdigest())
"""


def products(choice: str, *start: str) -> list[str]:
    """Return a hash of each product."""
    variables = {**os.environ, **KERNELS, "OMP_NUM_THREADS": "1", "MKL_CBWR": choice}
    command = [*start, sys.executable, "-W", "ignore", "-c", MULTIPLY]
    return subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.split()


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qemu", required=True)
    qemu = parser.parse_args().qemu
    rows = []
    for choice in CHOICES:
        here = products(choice)
        cells = []
        for processor in PROCESSORS.values():
            same = sum(one == other for one, other in zip(here, products(choice, qemu, "-cpu", processor), strict=True))
            cells.append(f"{same} of {len(here)} the same")
        rows.append([f"`{choice}`", *cells])
    print(table_lines(["MKL_CBWR", *PROCESSORS], rows))


if __name__ == "__main__":
    main()
