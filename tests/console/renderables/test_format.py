import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.renderables import format as fmt

FORMATS = (
    fmt.count,
    fmt.decimal,
    fmt.rate,
    fmt.percent,
    fmt.duration,
    fmt.age,
    fmt.millis,
    fmt.size,
    fmt.uptime,
    fmt.clock,
)


@pytest.mark.parametrize("show", FORMATS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_known_is_a_dash(show, value):
    assert show(value) == "–"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (fmt.count(1204), "1,204"),
        (fmt.count(16, "tok"), "16 tok"),
        (fmt.decimal(5.23), "5.2"),
        (fmt.decimal(0.525), "0.53"),
        (fmt.decimal(0.0), "0.0"),
        (fmt.decimal(262.4, "tok"), "262 tok"),
        (fmt.decimal(12_400.0, "tok"), "12.4k tok"),
        (fmt.rate(262.4, "tok"), "262 tok/s"),
        (fmt.percent(0.6), "60 %"),
        (fmt.percent(0.011), "1.1 %"),
        (fmt.percent(0.0), "0 %"),
        (fmt.percent(0.0001), "<0.1 %"),
        (fmt.percent(0.0996), "10 %"),
        (fmt.duration(0.0), "0 ms"),
        (fmt.duration(0.0004), "0.4 ms"),
        (fmt.duration(0.00996), "10 ms"),
        (fmt.duration(0.041), "41 ms"),
        (fmt.duration(0.9996), "1.0 s"),
        (fmt.duration(2.31), "2.3 s"),
        (fmt.duration(9.96), "10 s"),
        (fmt.duration(99.6), "2 min"),
        (fmt.duration(7200.0), "2.0 h"),
        (fmt.millis(2310.0), "2.3 s"),
        (fmt.age(0.04), "0.0 s"),
        (fmt.age(12.3), "12 s"),
        (fmt.size(180 * 2**20), "180 MiB"),
        (fmt.size(999), "999 B"),
        (fmt.size(1023), "1.0 KiB"),
        (fmt.uptime(761.0), "00:12:41"),
        (fmt.uptime(273_161.0), "3 d 03:52:41"),
        (fmt.clock(1_798_070_523.0), "00:02:03"),
    ],
)
def test_examples(text, shown):
    assert text == shown


@given(st.floats(min_value=0, max_value=1e15))
def test_formats_stay_short_and_have_no_nan(value):
    for show in (fmt.decimal, fmt.duration, fmt.millis, fmt.age):
        text = show(value)
        assert len(text) <= 24
        assert "nan" not in text and "inf" not in text and "e+" not in text


def test_clean_leaves_printable_text_alone():
    assert fmt.clean("Größe 模型 ✓") == "Größe 模型 ✓"


def test_clean_shows_what_would_steer_the_terminal():
    assert fmt.clean("a\x1b[2Jb") == "a␛[2Jb"
    assert fmt.clean("a\tb\nc") == "a b c"
    assert fmt.clean("\u202eabc\x9b") == "�abc�"


@given(st.text())
def test_clean_text_is_printable(text):
    assert fmt.clean(text).isprintable()
