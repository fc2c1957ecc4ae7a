"""What the command line does before it imports anything else: nothing is imported from the current
folder, and threads share the cores.

Neither happens to a program that imports ``opera``.
"""

import os
import sys

if "" in os.environ.get("PYTHONPATH", "-").split(os.pathsep):
    # An empty item is the current folder. This must not import pathlib, which that folder may hold.
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
