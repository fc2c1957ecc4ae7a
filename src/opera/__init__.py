"""OPERA: adapt a dense retriever to your own data.

    import opera
    run = opera.adapt("path/to/beir", model="minilm", out="run")
    print(run.measures["final"]["nDCG@10"], run.model_path)

``opera.api`` lists the public names.
"""

import os
import sys

TYPE_CHECKING = False  # importing typing here would import it from the current folder

if (
    sys.argv[:1] == ["-m"]
    and " -m opera " in f"{' '.join(sys.orig_argv)} "
    and not sys.flags.safe_path
):
    # python -m puts the current folder first, but nothing in a data folder may be imported
    del sys.path[0]

if os.environ.get("OPERA_REPRODUCIBLE", "") not in ("", "0"):
    from opera.core.environment import fix_arithmetic

    fix_arithmetic()  # before anything imports NumPy

if TYPE_CHECKING:
    from opera.api import *  # noqa: F403
    from opera.api import __all__ as __all__


def __dir__() -> list[str]:
    import opera.api

    return opera.api.__dir__()


def __getattr__(name: str) -> object:
    # imported late, because opera.cli.start must first remove the current folder from sys.path
    import opera.api

    return getattr(opera.api, name)
