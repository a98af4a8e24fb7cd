"""Writes reports: JSON, JSON lines, CSV, Markdown, SVG, HTML that stands alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import write_private
from playbooks.reports.document import Document, Facts, Table
from playbooks.reports.documents import document
from playbooks.reports.language import code, colon
from playbooks.reports.svg import bars_svg, chart_svg, stacked
from playbooks.reports.text import csv_cell, html, json_text, markdown

# not shown
STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --paper: #ffffff; --faint: #8a93a5;
  --rule: #d9dee7; --curve: #1f6feb; --band: #1f6feb33; --mark: #b35900; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --paper: #14171d; --faint: #8a93a5;
  --rule: #333a47; --curve: #6cb0ff; --band: #6cb0ff33; --mark: #ffb366; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
p.faint { color: var(--faint); } p.warn { border-left: 3px solid var(--mark); padding-left: .6rem; }
div.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui; }
svg .faint { fill: var(--faint); } svg .rule { stroke: var(--rule); }
svg .curve { stroke: var(--curve); fill: none; stroke-width: 2; } svg .dot { fill: var(--curve); }
svg .band { fill: var(--band); } svg .mark { stroke: var(--mark); stroke-dasharray: 4 3; }
svg .note { fill: var(--mark); }
"""


def write(report: dict[str, Any], path: Path) -> None:
    """Write it in the format that the file's name ends in. Raises ConfigError."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ConfigError(f"{path}: expected a name ending in {', '.join(WRITERS)}")
    try:
        write_private(path, writer(report))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error


def as_json(report: dict[str, Any]) -> str:
    return json_text(report, indent=2) + "\n"


def as_jsonl(report: dict[str, Any]) -> str:
    """The result's entries, one a line, each with the kind of its report."""
    marks = {"schema": report.get("schema"), "kind": report.get("kind")}
    return "".join(json_text(marks | row) + "\n" for row in document(report).rows)


def as_csv(report: dict[str, Any]) -> str:
    """The result's own table, with its numbers as they are (RFC 4180)."""
    table = document(report).result
    return csv_text([column.name for column in table.columns], table.rows)


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows([csv_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def as_markdown(report: dict[str, Any]) -> str:
    doc = document(report)
    blocks = [f"# {markdown(doc.title)}", *map(markdown, (*doc.lead, *doc.background))]
    blocks += [f"> {markdown(note)}" for note in doc.warnings]
    blocks += ["\n".join(f"- {markdown(text)}" for text in doc.sentences)] if doc.sentences else []
    for table in _all_tables(doc):
        blocks += [f"## {markdown(table.title)}", "\n".join(markdown_rows(table))]
    for facts in doc.facts:
        blocks += [f"## {markdown(facts.title)}"] if facts.title else []
        blocks += ["\n".join(_markdown_facts(facts))]
    return "\n\n".join(blocks) + "\n"


def _markdown_facts(facts: Facts) -> Iterator[str]:
    for name, text in facts.rows:
        yield (
            f"- **{markdown(name)}**{colon()}{markdown(text)}" if name else f"  - {markdown(text)}"
        )


def _all_tables(doc: Document) -> list[Table]:
    return [*doc.tables, *([doc.full] if doc.full is not None else [])]


def markdown_rows(table: Table) -> Iterator[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(markdown(cell).replace("|", "\\|") for cell in cells) + " |"

    yield line([column.name for column in table.columns])
    yield "| " + " | ".join("---:" if c.numeric else "---" for c in table.columns) + " |"
    for row in table.texts():
        yield line(row)


def as_svg(report: dict[str, Any]) -> str:
    """Its charts, one below the other. Raises ConfigError for a report that has none."""
    doc = document(report)
    drawn = [*map(bars_svg, doc.bars), *map(chart_svg, (*doc.charts, *doc.more_charts))]
    if not drawn:
        raise ConfigError(f"a {report.get('kind')} report has no chart to draw")
    return stacked(drawn, STYLE)


def as_html(report: dict[str, Any]) -> str:
    doc = document(report)
    return html_page(doc.title, _html_blocks(doc))


def html_page(title: str, blocks: Iterable[str]) -> str:
    return (
        f'<!doctype html>\n<html lang="{code()}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(blocks)
        + "\n</body></html>\n"
    )


def _html_blocks(doc: Document) -> Iterator[str]:
    yield f"<h1>{html(doc.title)}</h1>"
    for text in (*doc.lead, *doc.background):
        yield f'<p class="faint">{html(text)}</p>'
    for text in doc.warnings:
        yield f'<p class="warn">{html(text)}</p>'
    if doc.sentences:
        yield "<ul>" + "".join(f"<li>{html(text)}</li>" for text in doc.sentences) + "</ul>"
    for bars in doc.bars:
        yield bars_svg(bars)
    for chart in (*doc.charts, *doc.more_charts):
        yield f"<h2>{html(chart.title)}</h2>{chart_svg(chart)}"
    for table in _all_tables(doc):
        yield f"<h2>{html(table.title)}</h2>{html_table(table)}"
    for facts in doc.facts:
        rows = "".join(f"<dt>{html(name)}</dt><dd>{html(text)}</dd>" for name, text in facts.rows)
        yield f"<h2>{html(facts.title)}</h2><dl>{rows}</dl>"


def html_table(table: Table) -> str:
    kinds = [' class="n"' if column.numeric else "" for column in table.columns]

    def line(tag: str, cells: list[str]) -> str:
        inside = "".join(
            f"<{tag}{kind}>{html(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
        )
        return f"<tr>{inside}</tr>"

    head = line("th", [column.name for column in table.columns])
    body = "".join(line("td", row) for row in table.texts())
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


WRITERS: dict[str, Callable[[dict[str, Any]], str]] = {
    ".json": as_json, ".jsonl": as_jsonl, ".csv": as_csv, ".md": as_markdown, ".html": as_html,
    ".svg": as_svg,
}  # fmt: skip
