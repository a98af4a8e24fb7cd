"""Messages lose nothing: what the chat template leaves out is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.errors import RequestError

Messages = Sequence[dict[str, Any]]
BARE = ("role", "content", "tool_call_id")
"""A call's id says which answer is whose; templates that number nothing need none."""


def lost(messages: Messages, render: Callable[[Messages], str]) -> str | None:
    """ "messages.1.tool_calls": the first field that makes no difference to what `render` makes
    of the messages; None when all of them do. Fields are tried once a role: a template may well
    leave out the thoughts of earlier turns."""
    first: dict[tuple[str, str], int] = {}
    for number, message in enumerate(messages):
        for name in message:
            if name not in BARE:
                first.setdefault((message["role"], name), number)
    if not first:
        return None
    whole = render(messages)
    for (role, name), number in first.items():
        without = [
            {key: value for key, value in m.items() if m["role"] != role or key != name}
            for m in messages
        ]
        try:
            if render(without) == whole:
                return f"messages.{number}.{name}"
        except RequestError:
            continue  # the template asks for it
    return None
