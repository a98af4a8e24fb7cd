"""What a way out may say of a message that it was to deliver, and how a message is written."""

from __future__ import annotations

import os
from typing import Any

from playbooks.alerts.keeper import Message


class NotDelivered(Exception):
    """`unsure`: it may have arrived. `refused`: this one is not taken, another may be. `wait_s`:
    the other side asks for so long a pause."""

    def __init__(
        self, why: str, unsure: bool = False, *, refused: bool = False, wait_s: float = 0.0
    ) -> None:
        super().__init__(why)
        self.unsure, self.refused, self.wait_s = unsure, refused, wait_s


def body(message: Message, repeat: bool) -> dict[str, Any]:
    """JSON for a command and a webhook (docs/schemas/alert.json)."""
    return message.to_dict() | {"repeat": repeat, "sent_by": os.getpid()}
