"""`python -m console.locale.update`: what the code says, into the catalogues.

Translations are kept, what is no longer said goes, what is new is empty. A text stands in the
catalogue of the first room that says it. `--check` writes nothing and fails where it would.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from babel.messages.pofile import read_po, write_po

from console.locale.catalogue import said_by
from console.locale.words import OTHERS, WORDS

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
LANGUAGES = ("zh",)
ROOMS = {
    "console": ("console/",),
    "commands": ("console/commands/", "console/cli.py", "console/server/"),
    "engine": ("engine/", "kernels/"),
    "checklists": ("checklists/",),
    "playbooks-measure": (
        "playbooks/load/", "playbooks/measure/", "playbooks/forecast/", "playbooks/statistics/",
    ),
    "playbooks-health": (
        "playbooks/canary/", "playbooks/checkup/", "playbooks/diagnosis/", "playbooks/outside/",
        "playbooks/environment/", "playbooks/faults/", "playbooks/quality/", "playbooks/usual/",
    ),
    "playbooks-reports": ("playbooks/",),
}  # fmt: skip
"""Catalogue -> beginnings of the paths that it is made from; the longest that fits counts."""
MADE = datetime(2026, 12, 1, tzinfo=UTC)
"""Not when a catalogue was updated: that would change its every update."""
WIDTH = 100

Id = str | tuple[str, ...]


def room_of(path: str) -> str:
    return max((len(s), room) for room, starts in ROOMS.items() for s in starts
               if path.startswith(s))[1]  # fmt: skip


def extracted() -> dict[str, dict[Id, list[str]]]:
    """Room -> msgid (with a plural: a pair) -> the files that say it."""
    with (ROOT / "babel.cfg").open(encoding="utf-8") as mapping:
        methods, options = parse_mapping_cfg(mapping)  # type: ignore[no-untyped-call]
    found = list(extract_from_dir(ROOT, methods, options, directory_filter=_is_read))
    order = {room: at for at, room in enumerate(ROOMS)}
    rows = [(room_of(file), file, line, message) for file, line, message, _, _ in found]
    rows += [("console", "console/locale/words.py", 1, word) for word in (*WORDS, *OTHERS)]
    rows.sort(key=lambda row: (order[row[0]], row[1], row[2]))
    home: dict[str, tuple[str, Id]] = {}
    rooms: dict[str, dict[Id, list[str]]] = {room: {} for room in ROOMS}
    for room, file, _, message in rows:
        first, key = home.setdefault(message if isinstance(message, str) else message[0],
                                     (room, message))  # fmt: skip
        files = rooms[first].setdefault(key, [])
        if file not in files:
            files.append(file)
    return rooms


def _is_read(folder: str) -> bool:
    path = Path(folder).relative_to(ROOT)
    return f"{path.parts[0]}/" in {f"{s.partition('/')[0]}/" for v in ROOMS.values() for s in v}


def updated(language: str) -> dict[str, str]:
    """Room -> its catalogue as it should be, with the translations that there are."""
    kept: dict[str, Message] = {}
    for path in sorted((FOLDER / language).glob("*.po")):
        with path.open("rb") as file:
            kept |= {_first(message.id): message for message in read_po(file, language)}
    return {room: _written(language, messages, kept) for room, messages in extracted().items()}


def _written(language: str, found: Mapping[Id, list[str]], kept: Mapping[str, Message]) -> str:
    catalog = Catalog(language, project="EveWatch", version="1", copyright_holder="EveWatch",
                      creation_date=MADE, revision_date=MADE, fuzzy=False)  # fmt: skip
    for key, files in found.items():
        old = kept.get(_first(key))
        message = catalog.add(
            key,
            string=_string(old, key),
            locations=[(file, 0) for file in files],
            user_comments=old.user_comments if old is not None else (),
            flags=old.flags & {"fuzzy"} if old is not None else (),
        )
        message.flags.discard("python-format")  # "50 % of" is none
        message.flags.discard("python-brace-format")
    text = io.BytesIO()
    write_po(text, catalog, width=WIDTH, include_lineno=False)
    return text.getvalue().decode()


def _string(old: Message | None, key: Id) -> str | tuple[str, ...]:
    """The translation that there is, also of what has got or lost its plural."""
    said = "" if old is None else said_by(old)
    return said if isinstance(key, str) else (said,)


def _first(key: object) -> str:
    return str(key[0]) if isinstance(key, tuple | list) else str(key)


def main() -> int:
    behind = 0
    for language in LANGUAGES:
        for room, text in updated(language).items():
            path = FOLDER / language / f"{room}.po"
            if not path.exists() or path.read_text("utf-8") != text:
                behind += 1
                print(f"{path.relative_to(ROOT)}")
                if "--check" not in sys.argv:
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(text, "utf-8")
    return int("--check" in sys.argv and behind > 0)


if __name__ == "__main__":
    sys.exit(main())
