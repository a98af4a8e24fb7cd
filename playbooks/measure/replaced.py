"""Put something else in an attribute's place, and back again on every way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NONE = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside. What was the owner's own comes back, what was not goes."""
    own = vars(owner).get(name, _NONE)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is _NONE:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
