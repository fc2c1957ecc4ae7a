"""The command line runs this module before it imports anything else.

It keeps Python from importing modules of the current folder, and limits threads to the usable
cores. A program that imports ``opera`` does not run it.
"""

import os
import sys

if "" in os.environ.get("PYTHONPATH", "-").split(os.pathsep):
    # An empty item is the current folder, which may hold a pathlib.py: so pathlib is not used.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, os.environ["PYTHONPATH"].split(os.pathsep))
    )
    sys.path[:] = [
        path
        for path in sys.path
        if not (os.path.isdir(path) and os.path.samefile(path, "."))  # noqa: PTH112, PTH121
    ]

from opera.core.environment import share_cores

share_cores()  # before anything imports torch
