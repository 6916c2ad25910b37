from __future__ import annotations

import json

import pytest

from autoscout.common.markup import clean, embedded_json, escape, tag


def test_markup_escapes_unless_told_otherwise() -> None:
    assert tag("p", "<b>", tag("i", "&"), title='"', data_x=None, hidden=True) == '<p title="&quot;" hidden>&lt;b&gt;<i>&amp;</i></p>'
    assert escape(3) == "3"
    assert clean("a\x1b[1;31mb\x1b]0;title\x07c\x00d\n\te") == "abc�d\n\te"
    assert "<" not in embedded_json({"</script>": "<!--"})
    assert json.loads(embedded_json({"k": "</script>&"})) == {"k": "</script>&"}
    with pytest.raises(ValueError, match="JSON"):
        embedded_json({"x": float("nan")})
