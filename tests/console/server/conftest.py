"""Served engines: running, or stepped by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from served import Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Shared by the tests of a file, which must leave it idle."""
    with serving() as found:
        yield found
