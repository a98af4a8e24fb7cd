"""Where in a TOML file a key stands: the parser says what is there, and not in which line."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^\s*\[(\[)?\s*([^\]\s]+)\s*\]")
_KEY = re.compile(r"^\s*([A-Za-z0-9_-]+)\s*=")


class Lines:
    """Line numbers of tables and of the keys in them.

    A table of a list is ("steps", 0); a table inside it ("steps", 0, "with").
    """

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")  # TOML knows no other end of a line
        self._first: dict[tuple[str | int, ...], int] = {(): 1}
        self._keys: dict[tuple[tuple[str | int, ...], str], int] = {}
        counts: dict[tuple[str | int, ...], int] = {}
        path: tuple[str | int, ...] = ()
        for number, line in enumerate(self._lines, 1):
            if header := _HEADER.match(line):
                path = self._resolve(header[2].split("."), bool(header[1]), counts)
                self._first.setdefault(path, number)
            elif key := _KEY.match(line):
                self._keys.setdefault((path, key[1]), number)

    def _resolve(
        self, names: list[str], is_list: bool, counts: dict[tuple[str | int, ...], int]
    ) -> tuple[str | int, ...]:
        """The full path of a header: names of lists get the number of their latest entry."""
        path: tuple[str | int, ...] = ()
        for i, name in enumerate(names):
            path = (*path, name)
            last = i == len(names) - 1
            if last and is_list:
                counts[path] = counts.get(path, 0) + 1
            if path in counts:
                path = (*path, counts[path] - 1)
        return path

    def of(self, path: tuple[str | int, ...], key: str | None = None) -> int:
        """Of a key in a table, else of what is nearest: the table, or the table around it."""
        if key is not None and (path, key) in self._keys:
            return self._keys[path, key]
        for end in range(len(path), -1, -1):
            if path[:end] in self._first:
                return self._inside(self._first[path[:end]], path[end:], key)
            inline = path[end - 1] if end else None
            if isinstance(inline, str) and (path[: end - 1], inline) in self._keys:
                return self._inside(self._keys[path[: end - 1], inline], path[end:], key)
        return 1

    def _inside(self, first: int, rest: tuple[str | int, ...], key: str | None) -> int:
        """In an inline table or list that begins at `first`: the line with the key's name."""
        entry = next((part for part in reversed(rest) if isinstance(part, int)), 0)
        if key is None:
            return first
        found = 0
        for number in range(first, len(self._lines) + 1):
            line = self._lines[number - 1]
            if number > first and _HEADER.match(line):
                break
            for _ in re.finditer(rf"(?<![\w-]){re.escape(key)}\s*=", line):
                if found == entry or not rest:
                    return number
                found += 1
        return first
