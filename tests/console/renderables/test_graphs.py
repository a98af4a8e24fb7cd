from console.history import Series
from console.renderables import format as fmt
from console.renderables.graphs import bar, blocks, chart, spark
from console.renderables.lines import plain, width_of


def rising(seconds=20):
    series = Series()
    for second in range(seconds):
        series.push(float(second), float(second))
    return series


def test_blocks_scale_from_zero():
    assert blocks([0.0, 4.0, 8.0], top=8.0) == "▁▄█"


def test_a_gap_is_not_a_zero():
    assert blocks([8.0, None, 0.0], top=8.0) == "█ ▁"


def test_blocks_of_nothing_but_zeros():
    assert blocks([0.0, 0.0], top=0.0) == "▁▁"


def test_blocks_stack_over_rows():
    values = [1.0, 8.0, 16.0]
    assert blocks(values, 16.0, row=1, rows=2) == "  █"
    assert blocks(values, 16.0, row=0, rows=2) == "▁██"


def test_bar_in_eighths():
    assert bar(0.5, 4) == "██"
    assert bar(0.53, 4) == "██▏"
    assert bar(2.0, 3) == "███"
    assert bar(None, 4) == bar(float("nan"), 4) == ""


def test_spark_names_its_highest_value_and_its_span():
    text = plain(spark("waiting", rising(), 19.0, 50, fmt.count))
    assert text.startswith("waiting ")
    assert text.endswith("max 19 in 48 s")
    assert len(text) == 50


def test_spark_without_data_says_so():
    assert plain(spark("cap", Series(), 0.0, 50, fmt.count)).endswith("nothing yet")


def test_chart_has_both_axes():
    lines = [plain(line) for line in chart("running", rising(), 19.0, 60, 6, fmt.count, 20.0)]
    assert len(lines) == 6
    assert lines[0].startswith("running") and lines[0].endswith("now 19")
    assert lines[1].startswith("       19│")
    assert lines[4].startswith("        0│")
    assert "−20 s" in lines[5] and lines[5].endswith("now")
    assert max(len(line) for line in lines) <= 60


def test_chart_becomes_a_spark_where_there_is_no_room():
    lines = chart("running", rising(), 19.0, 60, 2, fmt.count)
    assert len(lines) == 1
    assert all(width_of(line) <= 60 for line in lines)
    assert chart("running", rising(), 19.0, 60, 0, fmt.count) == []
