"""Settings: every mistake is reported at once, in words; each setting documents itself."""

from __future__ import annotations

from typing import Literal

import pytest

from opera.core.errors import SettingError
from opera.core.settings import Settings, setting


class Oven(Settings):
    """Settings of an oven."""

    listing = "oven --help lists all"
    degrees: int = setting(180, "how hot", "the cook book", ge=50, le=250)
    heat: Literal["top", "fan"] = setting("fan", "where from", "p. 3")
    minutes: float | None = setting(None, "how long", "by weight", gt=0)


def test_every_mistake_is_reported_in_one_message() -> None:
    with pytest.raises(SettingError) as caught:
        Oven.parse({"degrees": 300, "heat": "flame", "minuts": 5})
    assert str(caught.value).splitlines() == [
        "degrees: must be less than or equal to 250, got 300",
        "heat: must be 'top' or 'fan', got 'flame'",
        "unknown setting 'minuts'; did you mean 'minutes'? (oven --help lists all)",
    ]


def test_each_setting_is_documented_in_order() -> None:
    assert [(doc.name, doc.kind, doc.default, doc.help, doc.source) for doc in Oven.docs()] == [
        ("degrees", "int", "180", "how hot", "the cook book"),
        ("heat", "top | fan", "fan", "where from", "p. 3"),
        ("minutes", "float", "auto", "how long", "by weight"),
    ]
