"""Reads a language's catalogues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from babel.messages.catalog import Message


def texts_of(folder: Path) -> dict[str, str]:
    """msgid -> translation, of a plural for both of its msgids. What has none, or an unsure one,
    is left out."""
    from babel.messages.pofile import read_po

    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.po")):
        with path.open("rb") as file:
            for message in read_po(file):
                said = said_by(message)
                if message.id and said and not message.fuzzy:
                    ids = (message.id,) if isinstance(message.id, str) else message.id
                    found |= dict.fromkeys(ids, said)
    return found


def said_by(message: Message) -> str:
    """Its translation, "" for none: Chinese has one form for any number."""
    said = message.string
    return said if isinstance(said, str) else said[0] if said else ""
