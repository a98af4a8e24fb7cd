"""A translated page says what its English original says, as far as that has no language."""

import re

import pytest

from command_lines import BLOCK
from console.locale import lang
from console.locale.catalogue import texts_of
from glossary import lacking, terms
from repository import ROOT

TRANSLATED = {
    "README.md": "README.zh.md",
    **{
        f"docs/{name}.md": f"docs/zh/{name}.md"
        for name in ("console", "forecast", "log", "playbooks")
    },
}
PICTURES = list((ROOT / "docs").glob("*.svg"))
MEASURED = re.compile(r"<!-- (\w+): made by .*?<!-- end of \1 -->", re.S)
"""Tables that a benchmark rewrites: only the English page has them, its translation links there."""


@pytest.fixture(params=TRANSLATED)
def pages(request):
    """The English page and its translation, as (path, text)."""
    both = request.param, TRANSLATED[request.param]
    return [(path, MEASURED.sub("", (ROOT / path).read_text("utf-8"))) for path in both]


def code_of(text):
    """Each block's lines without their comments (after two blanks, or #), and the code in prose."""
    blocks = [
        [re.split(r"\s{2,}|\s#", line.strip())[0] for line in block.splitlines()]
        for block in BLOCK.findall(text)
    ]
    inline = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    return blocks, {" ".join(code.split()) for code in inline}


def links_of(path, text):
    """Files that a page links to, as paths from the root."""
    folder = (ROOT / path).parent
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", BLOCK.sub("", text))
    return {(folder / target).resolve().relative_to(ROOT).as_posix() for target in targets}


def test_it_has_the_same_headings_rows_and_items(pages):
    english, translated = (
        re.findall(r"^(#+|\||-)(?= )", BLOCK.sub("", text), re.M) for _, text in pages
    )
    assert translated == english


def test_it_has_the_same_code(pages):
    (blocks, inline), (translated_blocks, translated) = (code_of(text) for _, text in pages)
    assert translated_blocks == blocks
    assert translated - inline == set()
    assert inline - translated == set(), f"{pages[1][0]} lacks what {pages[0][0]} has"


def test_it_has_the_same_numbers(pages):
    english, translated = (set(re.findall(r"\d(?:[\d.,]*\d)?", text)) for _, text in pages)
    assert translated - english == set()
    assert english - translated == set(), f"{pages[1][0]} lacks numbers of {pages[0][0]}"


def test_its_links_are_the_same_and_lead_somewhere(pages):
    english, translated = (links_of(path, text) for path, text in pages)
    assert [path for path in english | translated if not (ROOT / path).exists()] == []
    originals = {translation: path for path, translation in TRANSLATED.items()}
    originals |= {f"docs/zh/{picture.name}": f"docs/{picture.name}" for picture in PICTURES}
    same = [{originals.get(path, path) for path in links} for links in (english, translated)]
    assert same[1] == same[0]


def test_its_words_are_those_of_the_glossary(pages):
    (_, english), (_, translated) = pages
    prose = re.sub(r"`[^`]+`", " ", BLOCK.sub("", english))
    assert lacking(translated, " ".join(prose.split()), terms()) == []


def test_labels_are_those_on_the_screen():
    """`label`（标签）: what stands in brackets is what the console shows."""
    said = texts_of(lang.FOLDER / "zh")
    page = (ROOT / "docs/zh/console.md").read_text("utf-8")
    labels = [pair for pair in re.findall(r"`([^`]+)`（([^（）\[]+)）", page) if pair[0] in said]
    assert len(labels) >= 20
    assert [(label, shown) for label, shown in labels if said[label] != shown] == []
