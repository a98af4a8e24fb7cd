"""The catalogues: they hold what the code says, and their translations have its places."""

import re

import pytest
from babel.messages.pofile import read_po

from console.locale import lang, update
from console.locale.catalogue import said_by
from console.locale.form import places
from glossary import lacking, terms

MISSING = {
    "console": 0,
    "commands": 0,
    "engine": 0,
    "checklists": 0,
    "playbooks-measure": 0,
    "playbooks-health": 0,
    "playbooks-reports": 0,
}
"""Texts that have no translation yet: this only goes down."""


def entries(room):
    with (lang.FOLDER / "zh" / f"{room}.po").open("rb") as file:
        return [message for message in read_po(file) if message.id]


def ids(message):
    return [message.id] if isinstance(message.id, str) else list(message.id)


def test_the_catalogues_hold_what_the_code_says():
    behind = [
        room
        for room, text in update.updated("zh").items()
        if (lang.FOLDER / "zh" / f"{room}.po").read_text("utf-8") != text
    ]
    assert not behind, "run `python -m console.locale.update`, then translate what is new"


@pytest.mark.parametrize("room", update.ROOMS)
def test_every_text_has_a_translation(room):
    missing = [message.id for message in entries(room) if not said_by(message) or message.fuzzy]
    assert len(missing) <= MISSING[room], missing[:20]


def is_source(text):
    """Authors and where they wrote it."""
    return re.search(r", [A-Z]\w+ 20\d\d$", text)


@pytest.mark.parametrize("room", update.ROOMS)
def test_prose_is_not_translated_by_itself(room):
    """What nobody is shown is left out (`# not shown`), not repeated."""
    same = [m.id for m in entries(room) if said_by(m) == m.id and not is_source(m.id)]
    assert not [text for text in same if re.search(r"(?<!\S)[A-Za-z]+ [a-z]+ [a-z]+(?!\S)", text)]


@pytest.mark.parametrize("room", update.ROOMS)
def test_a_translation_has_the_places_of_its_original(room):
    for message in entries(room):
        if said := said_by(message):
            for one in ids(message):
                assert sorted(places(said)) == sorted(places(one)), one


@pytest.mark.parametrize("room", update.ROOMS)
def test_terms_are_those_of_the_glossary(room):
    known = terms()
    assert known["KV cache"] == ["KV 缓存"]
    wrong = []
    for message in entries(room):
        said, text = said_by(message), re.sub(r"`[^`]*`|\{\w+(:n)?\}", " ", ids(message)[0])
        if said and (lacks := lacking(said, text, known)):
            wrong.append((lacks, ids(message)[0], said))
    assert not wrong
