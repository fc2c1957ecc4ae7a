"""Print how many statements, lines and files each folder of a package has: ``python tools/size.py [src/opera]``.

A statement is an ``ast.stmt`` that is neither an import nor a docstring.
"""

import ast
import sys
from collections import Counter
from pathlib import Path


def statements(source: str) -> int:
    """Count the statements of a module."""
    left_out = (ast.Import, ast.ImportFrom)
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, left_out)
        and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        for node in ast.walk(ast.parse(source))
    )


def main(package: Path) -> None:
    """Print the table, by the first folder below the package."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*.py")):
        text, parts = path.read_text(), path.relative_to(package).parts
        folder = parts[0] if len(parts) > 1 else "."
        own = Counter(statements=statements(text), lines=text.count("\n"), files=1)
        counts[folder] = counts.get(folder, Counter()) + own
    counts["all"] = sum(counts.values(), Counter())
    for folder, own in counts.items():
        print(f"{folder:16}" + "".join(f"{own[name]:8,} {name}" for name in ("statements", "lines", "files")))


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "src/opera"))
