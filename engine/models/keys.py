"""Reading a configuration whole: typed reads that remember what was asked for.

What is left afterwards and is not known to be harmless changes the computation in a way that
nobody applies. It is refused by its name, at whatever depth it stands: a default in its place
would be another model.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from engine.errors import ModelError

T = TypeVar("T", int, float, bool, str)


class Keys:
    """One table of a configuration. `where` begins every message: the file, and the table in it;
    `prefix` is what the file writes before each key."""

    def __init__(self, where: str, values: dict[str, Any], prefix: str = "") -> None:
        self.where, self._prefix = where, prefix
        self._values = values
        self._asked: set[str] = set()

    def name(self, key: str) -> str:
        """Where the key stands, as messages begin."""
        return f"{self.where}: {self._prefix}{key}"

    def value(self, key: str) -> Any:
        """As it stands; None where there is none."""
        self._asked.add(key)
        return self._values.get(key)

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """ModelError where it is of another type, or missing without a default."""
        value: Any = self.value(key)
        value = default if value is None else value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            problem = "is missing" if value is None else f"is {value!r}, not {kind.__name__}"
            raise ModelError(f"{self.name(key)} {problem}")
        return value

    def has(self, key: str) -> bool:
        """It stands there, be it null."""
        return key in self._values

    def optional(self, key: str, kind: type[T]) -> T | None:
        return None if self.value(key) is None else self.get(key, kind)

    def table(self, key: str) -> Keys:
        """A table inside this one, empty where there is none."""
        value = self.value(key)
        if value is not None and not isinstance(value, dict):
            raise ModelError(f"{self.name(key)} is {value!r}, not an object")
        return Keys(self.name(key), value or {})

    def ids(self, key: str) -> list[int]:
        """Configurations write one id, a list of ids, or null; a negative one stands for none."""
        value = self.value(key)
        items = value if isinstance(value, list) else [] if value is None else [value]
        if any(not isinstance(item, int) or isinstance(item, bool) for item in items):
            raise ModelError(f"{self.name(key)} is {value!r}, neither an id nor a list of ids")
        return [item for item in items if item >= 0]

    def only(self, key: str, *values: object) -> None:
        """Refuse the key unless it is absent, null or one of `values`, which change nothing."""
        value = self.value(key)
        if value is None or any(value == v and type(value) is type(v) for v in values):
            return
        if is_active(value):
            raise self.refused(key)

    def refused(self, key: str) -> ModelError:
        return ModelError(
            f"{self.name(key)} is {_shown(self._values[key])}, which is not supported: "
            "the model would compute something else"
        )

    def present(self) -> bool:
        """Something is in it."""
        return any(is_active(value) for value in self._values.values())

    def rest(self, harmless: Collection[str] = ()) -> list[str]:
        """Keys that have a value and that nobody asked for, but for the harmless ones."""
        return [
            key
            for key, value in self._values.items()
            if key not in self._asked and key not in harmless and is_active(value)
        ]

    def refuse_rest(self, harmless: Collection[str] = ()) -> None:
        """ModelError that names the first of them."""
        for key in self.rest(harmless):
            raise self.refused(key)


def is_active(value: object) -> bool:
    """Null, false, zero and what is empty say that a thing is not used."""
    return bool(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
