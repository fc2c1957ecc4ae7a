"""Print how many statements, lines and files each folder of a package has: ``python tools/size.py [src/opera]``.

A statement of Python is an ``ast.stmt`` that is neither an import nor a docstring. A statement of SQL ends with a
semicolon.
"""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

SQL_TEXT_OR_COMMENT = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
"""Parts of SQL whose semicolons end no statement."""


def statements(source: str) -> int:
    """Count the statements of a Python module."""
    left_out = (ast.Import, ast.ImportFrom)
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, left_out)
        and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        for node in ast.walk(ast.parse(source))
    )


def sql_statements(source: str) -> int:
    """Count the statements of an SQL file."""
    return sum(bool(part.strip()) for part in SQL_TEXT_OR_COMMENT.sub("", source).split(";"))


def main(package: Path) -> None:
    """Print the table, by the first folder below the package."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.sql")]):
        text, parts = path.read_text(), path.relative_to(package).parts
        count = statements(text) if path.suffix == ".py" else sql_statements(text)
        folder = parts[0] if len(parts) > 1 else "."
        size = Counter(statements=count, lines=text.count("\n"), files=1)
        counts[folder] = counts.get(folder, Counter()) + size
    counts["all"] = sum(counts.values(), Counter())
    for folder, size in counts.items():
        print(f"{folder:16}" + "".join(f"{size[name]:8,} {name}" for name in ("statements", "lines", "files")))


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "src/opera"))
