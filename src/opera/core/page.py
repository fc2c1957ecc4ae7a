"""The HTML pages of ``opera review`` and ``opera show``: their shared style and script, and their
data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def style(name: str) -> str:
    """Return a style that pages share: the colours, which follow the system, or the layout."""
    return files("opera.core").joinpath(f"{name}.css").read_text(encoding="utf-8")


def page_of(template: str, values: Mapping[str, Any]) -> bytes:
    """Return a page in UTF-8: a template with the shared style and script, and with data.

    Args:
        template: HTML with the places ``{{ style }}``, ``{{ script }}`` and ``{{ data }}``.
        values: the data as JSON holds them. Their texts do not become markup: scripts set them as
            texts, and no text can close the script element that contains the data.
    """
    script = files("opera.core").joinpath("page.js").read_text(encoding="utf-8")
    template = template.replace("{{ style }}", style("palette") + style("page"))
    template = template.replace("{{ script }}", script)
    before, _, after = template.partition("{{ data }}")
    data = json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    # a path may contain bytes that are not UTF-8; as backslashes they are escapes of JSON
    return f"{before}{data}{after}".encode(errors="backslashreplace")
