"""``python -m opera``, which is also what torchrun starts: ``torchrun --nproc-per-node 2 -m opera
train ...``.
"""

from opera.cli import main

if __name__ == "__main__":
    main()
