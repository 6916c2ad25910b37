from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from autoscout.common.draw import HEIGHT, WIDTH, Axis, Scale, chart, picture_file

SVG = "{http://www.w3.org/2000/svg}"


def test_scales() -> None:
    linear = Scale.over([0.0, 100.0], 200.0, 0.0, margin=0.0)
    assert linear.place(0.0) == 200.0
    assert linear.place(100.0) == 0.0
    assert linear.ticks() == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    wide = Scale.over([1.0, 10000.0], 0.0, 100.0, margin=0.0)
    assert wide.log
    assert wide.place(100.0) == pytest.approx(50.0)
    assert wide.ticks() == [1.0, 10.0, 100.0, 1000.0, 10000.0]
    single = Scale.over([5.0], 0.0, 10.0)
    assert 0.0 < single.place(5.0) < 10.0


def test_axes_of_words_few_numbers_and_many_numbers() -> None:
    words = Axis.of("kv", ["q8", "f16", "q8"], 100.0, 0.0, 120.0)
    assert words.marks == (("f16", 100.0), ("q8", 0.0))
    few = Axis.of("threads", [8, 1, 4], 100.0, 0.0, 120.0)
    assert [text for text, _ in few.marks] == ["1", "4", "8"]
    assert few.place(4) == 50.0
    assert few.place(99) == 120.0
    many = Axis.of("size", list(range(1, 100)), 100.0, 0.0, 120.0)
    assert many.scale is not None
    assert many.place(1) == 100.0
    assert many.place(99) == pytest.approx(0.0)
    flags = Axis.of("flag", [True, 1, "on"], 100.0, 0.0, 120.0)
    assert len(flags.marks) == 3


def drawn(*lines: tuple[str, list[float], list[float]], log: bool = False) -> ElementTree.Element:
    named = {name: (np.array(x), np.array(y)) for name, x, y in lines}
    return ElementTree.fromstring(picture_file(chart("a < b", named, "days", log=log), width=WIDTH, height=HEIGHT, title="t"))


def test_a_chart_has_a_line_and_a_name_for_each() -> None:
    root = drawn(("one", [0.0, 1.0, 2.0], [0.0, 10.0, float("nan")]), ("two", [0.0, 2.0], [5.0, 5.0]))
    first, second = (line.get("points", "").split() for line in root.iter(f"{SVG}polyline"))
    assert (len(first), len(second)) == (2, 2)  # what is not finite is left out
    assert first[1].split(",")[1] == "30.0"  # the highest value is at the top margin
    assert second[0].split(",")[1] == "125.0"  # half of it halfway up
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a < b", "days", "one", "two"} <= set(texts)


def test_a_logarithmic_chart_spaces_decades_evenly() -> None:
    root = drawn(("t", [1.0, 10.0, 100.0], [0.1, 0.5, 1.0]), log=True)
    (line,) = root.iter(f"{SVG}polyline")
    places = [float(point.split(",")[0]) for point in line.get("points", "").split()]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)


def test_a_chart_of_nothing_is_still_a_chart() -> None:
    assert not list(drawn().iter(f"{SVG}polyline"))
    assert len(list(drawn(("empty", [], [])).iter(f"{SVG}polyline"))) == 1
