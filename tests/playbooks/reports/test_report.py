"""Every format from one report: numbers survive, markup does not, nothing comes from elsewhere."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from engine.errors import ConfigError
from playbooks.measure.options import option_matrix
from playbooks.reports import results
from playbooks.reports.document import Bars, Chart, Line, change, duration, percent, size
from playbooks.reports.formats import as_csv, as_html, as_jsonl, as_markdown, write
from playbooks.reports.svg import bars_svg, chart_svg
from playbooks.reports.text import json_text

BLOCK = {"p50": 10.0, "p90": 1500.0, "p99": None, "mean": 12.5, "n": 40}


def sweep_report():
    points = [
        {"batch": n, "output_tok_s": 10.0 * n, "low": 9.0 * n, "high": 11.0 * n,
         "latency": {"e2e_ms": BLOCK | {"p99": 50.0 * n}, "ttft_ms": BLOCK, "tpot_ms": BLOCK},
         "little_error": 0.01, "bound_by": "cap", "doubts": None}
        for n in (1, 2, 4, 8)
    ]  # fmt: skip
    return {
        "schema": 1, "kind": "sweep", "model": "<b>tiny|model</b>", "seconds": 3.0,
        "environment": {"device": "cpu", "threads": 2, "torch": "2"},
        "work": {"lengths": "chat", "seed": 0, "repeats": 3, "p99_of": "e2e_ms"},
        "points": points, "knee": 4, "recommended_cap": 3, "abstained": False,
        "reasons": ["75% of the knee 4"],
    }  # fmt: skip


def check_report(*found):
    """Of a playbook of sweeps with these reports."""
    steps = [
        {"id": f"step{n}", "kind": "sweep", "verdict": "pass", "seconds": 1.0, "reason": "",
         "gates": [], "metrics": {"knee": 4}, "report": report}
        for n, report in enumerate(found, 1)
    ]  # fmt: skip
    return {
        "schema": 1, "kind": "check", "title": "Mine", "state": "done", "view": "outside",
        "target": {"url": "http://host:8000"}, "started": "today", "seconds": 2.0, "fault": None,
        "verdict": "pass", "blind_spots": [], "withheld": [], "findings": [], "steps": steps,
    }  # fmt: skip


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.found += [v for k, v in attrs if k in ("src", "href", "xlink:href", "data")]


def test_html_stands_alone_and_shows_plots():
    page = as_html(sweep_report())
    links = Links()
    links.feed(page)
    assert links.found == []
    assert not {"script", "link", "img", "iframe"} & set(links.tags)
    assert not re.search(r"url\(|@import|https?://", page)
    assert links.tags.count("svg") == 2
    assert "&lt;b&gt;tiny|model&lt;/b&gt;" in page
    assert "<b>tiny" not in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(svg)


def test_csv_has_the_numbers_as_they_are():
    rows = list(csv.DictReader(io.StringIO(as_csv(sweep_report()))))
    assert [float(row["tok/s"]) for row in rows] == [10.0, 20.0, 40.0, 80.0]
    assert float(rows[3]["E2E p99"]) == 400.0


def test_json_lines_have_one_entry_each():
    rows = [json.loads(line) for line in as_jsonl(sweep_report()).splitlines()]
    assert [row["batch"] for row in rows] == [1, 2, 4, 8]
    assert {(row["kind"], row["schema"]) for row in rows} == {("sweep", 1)}


def test_a_check_shows_what_its_steps_found_inside_and_at_a_url():
    rungs = [{"users": n, "output_tok_s": 10.0 * n, "lost": 0.02} for n in (1, 2)]
    text = as_markdown(check_report(sweep_report(), {"points": rungs, "knee": 4}, None))
    assert "## step1: batch sizes" in text and "| 8 | 80.0 |" in text
    assert "## step2: closed loops" in text and "| 2 | 20.0 | 2.0% |" in text
    assert "## step3" not in text and "| step3 | knee | 4 |" in text


def test_markdown_tables_have_as_many_cells_everywhere():
    text = as_markdown(sweep_report())
    assert "knee 4, recommended cap 3" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert len(table) == 6
    assert len(cells) == 1


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".md", ".html"])
def test_any_report_can_be_exported(tmp_path, suffix):
    for name, report in {
        "options": option_matrix(compared=[]),
        "other": {"schema": 1, "kind": "other", "latency": {"ttft_ms": BLOCK}, "reasons": ["a|b"]},
    }.items():
        path = tmp_path / f"{name}{suffix}"
        write(report, path)
        assert path.read_text("utf-8").strip()
        assert "NaN" not in path.read_text("utf-8")


def test_a_format_or_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"ending in \.json"):
        write(sweep_report(), tmp_path / "report.pdf")
    with pytest.raises(ConfigError, match="cannot be written"):
        write(sweep_report(), tmp_path / "none" / "report.md")


def test_charts_make_a_file_of_their_own(tmp_path):
    write(sweep_report(), tmp_path / "s.svg")
    drawn = ElementTree.parse(tmp_path / "s.svg").getroot()
    inside = drawn.findall("{http://www.w3.org/2000/svg}svg")
    assert [one.get("y") for one in inside] == ["0", "280"]
    with pytest.raises(ConfigError, match="no chart"):
        write(option_matrix(compared=[]), tmp_path / "o.svg")


def test_what_others_wrote_is_no_formula_no_markup_and_steers_nothing():
    evil = "=1+1\x1b[2J|<b>"
    report = sweep_report() | {"model": evil, "reasons": [evil]}
    report["points"][0]["doubts"] = evil
    (first, *_) = csv.DictReader(io.StringIO(as_csv(report)))
    assert first["counts"] == "'=1+1␛[2J|<b>"
    text = as_markdown(report)
    assert "\x1b" not in text and "<b>" not in text and "\\|&lt;b>" in text
    assert "\x1b" not in as_html(report)
    assert json.loads(json_text({"x": "\x9b\ud800"})) == {"x": "\x9b\ud800"}
    assert json_text({"x": "\x9b\ud800"}).isascii()


def test_charts_leave_gaps_and_bars_their_legend():
    chart = Chart("t", "x", [1, 2, 4], [Line("y", [1.0, None, 3.0])], marks=[("knee", 2)])
    drawn = ElementTree.fromstring(chart_svg(chart))
    assert len(drawn.findall("circle")) == 2
    one = chart_svg(Chart("t", "x", [4], [Line("y", [0.0])]))
    ElementTree.fromstring(one)
    bars = bars_svg(Bars("b", [("a<b", 0.5), ("c", 0.499), ("unseen", 0.001)]))
    ElementTree.fromstring(bars)
    assert bars.count("<rect") == 3 + 2
    assert "a&lt;b" in bars


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (duration(2500.0), "2.50 s"), (duration(2.5), "2.5 ms"), (duration(None), "–"),
        (size(3 << 20), "3.0 MiB"), (size(12), "12 B"), (percent(0.5), "50.0%"),
        (change(-0.25), "-25.0%"), (change(float("nan")), "–"),
    ],
)  # fmt: skip
def test_cells(shown, text):
    assert shown == text


# --- kept results ---------------------------------------------------------------------


def test_results_come_back_newest_first_and_damaged_files_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    assert list(results.saved("compare")) == []
    for n in range(3):
        results.save({"kind": "compare", "name": "a/b", "n": n})
    results.save({"kind": "sweep", "n": 9})
    (results.folder() / "compare-99999999T000000-x.json").write_text('{"kind": "comp')
    assert [r["n"] for r in results.saved("compare")] == [2, 1, 0]
    assert not list(results.folder().glob("*.part"))


def test_old_results_go(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    monkeypatch.setattr(results, "KEPT", 2)
    for n in range(4):
        results.save({"kind": "sweep", "n": n})
    assert [r["n"] for r in results.saved("sweep")] == [3, 2]


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="cannot be written"):
        results.save({"kind": "sweep"})
