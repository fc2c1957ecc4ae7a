"""OPERA: adapt a dense retriever to your own data.

    import opera
    run = opera.adapt("path/to/beir", model="minilm", out="run")
    print(run.measures["after"]["nDCG@10"], run.model_path)

``opera.api`` lists the public names.
"""

import os
import sys

if (
    sys.argv[:1] == ["-m"]
    and " -m opera " in f"{' '.join(sys.orig_argv)} "
    and not sys.flags.safe_path
):
    del sys.path[
        0
    ]  # python -m puts the current folder first; nothing in a data folder is to be imported
if "".join(sys.argv[:1]).endswith(("-m", "opera")) and "" in os.environ.get(
    "PYTHONPATH", "-"
).split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, os.environ["PYTHONPATH"].split(os.pathsep))
    )
    # An empty item is the current folder. This must not import pathlib, which that folder may hold.
    sys.path[:] = [
        path
        for path in sys.path
        if not (os.path.isdir(path) and os.path.samefile(path, "."))  # noqa: PTH112, PTH121
    ]

from typing import TYPE_CHECKING

from opera.core.environment import fix_arithmetic, share_cores

fix_arithmetic()  # before anything imports NumPy
share_cores()  # before anything imports torch

from opera.api import __all__ as __all__  # noqa: E402
from opera.api import __dir__ as __dir__  # noqa: E402
from opera.api import __getattr__ as __getattr__  # noqa: E402

if TYPE_CHECKING:
    from opera.api import *  # noqa: F403
