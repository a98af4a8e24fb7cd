"""What threads tell the console. Handlers own the widgets; a newer message replaces an older
one of its kind that nobody has read yet."""

from __future__ import annotations

from collections.abc import Callable

from textual.message import Message


class EngineUp(Message):
    """start() has returned."""


class EngineFailed(Message):
    """start() raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class EngineDown(Message):
    """stop() has returned, or took too long; the console may end."""


class UiCall(Message):
    """Something that another thread wants done in the UI's."""

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__()
        self.do = do


class AnswerArrived(Message):
    """The stream of a running answer has something to take."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, AnswerArrived)
