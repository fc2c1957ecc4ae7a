"""Whatever text is printed, none of it is a command to the terminal."""

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from opera.core.terminal import json_text, printable, shown

UNSAFE = re.compile(r"(?!\n)[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Cs"]))


@given(ANY_TEXT)
@example("é 日本 👩\u200d🔬 α")
def test_nothing_unsafe_is_left_and_the_rest_stays(text):
    assert not UNSAFE.search(printable(text))
    assert not UNSAFE.search(shown(text))
    assert printable(printable(text)) == printable(text)
    assert UNSAFE.search(text) or printable(text) == text
    assert json.loads(json_text([text])) == [text]
    assert not UNSAFE.search(json_text({text: text}))
