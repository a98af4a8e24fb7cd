"""What a way out may say of a message that it was to deliver."""

from __future__ import annotations


class NotDelivered(Exception):
    """`unsure`: it may have arrived."""

    def __init__(self, why: str, unsure: bool = False) -> None:
        super().__init__(why)
        self.unsure = unsure
