"""Chat services and mail, through the apprise library: DingTalk, Feishu, WeCom, Slack, mail and
many more. An extra of the package: nobody who does not use it has to install it.

An address of apprise's holds the service's own secret, so it comes from the environment, and is
shown nowhere.
"""

from __future__ import annotations

import importlib
import logging
import threading
from typing import Any

from engine.errors import ConfigError
from playbooks.alerts.delivery import NotDelivered
from playbooks.alerts.keeper import FIRING, Message
from playbooks.reports.language import say

MISSING = "apprise: is not installed; pip install 'evewatch[notify]'"
LOGGER = "apprise"


class Apprise:
    """Raises ConfigError without the library, or for an address that it does not know."""

    def __init__(self, address: str, variable: str, limit_s: float) -> None:
        try:
            self._library: Any = importlib.import_module("apprise")
        except ImportError:
            raise ConfigError(MISSING) from None
        self._service: Any = self._library.Apprise.instantiate(address)
        if self._service is None:
            raise ConfigError(
                f"secret_env: what {variable} holds is no address that apprise knows; one is like "
                "dingtalk://TOKEN or mailto://USER:PASSWORD@HOST"
            )
        self._service.socket_connect_timeout = self._service.socket_read_timeout = limit_s

    @property
    def name(self) -> str:
        """Of the service, without anything that is secret."""
        return f"apprise {self._service.service_name}"

    def __call__(self, message: Message, repeat: bool) -> None:
        with _Said() as said:
            taken = self._service.notify(
                title=say(f"EveWatch: {message.rule} {message.state}"),
                body="\n".join(map(say, body_of(message, repeat).split("\n"))),
                notify_type=self._kind(message),
            )
        if not taken:
            raise NotDelivered(f"it was not taken: {said.last or 'apprise does not say why'}", True)

    def _kind(self, message: Message) -> Any:
        kinds = self._library.NotifyType
        if message.state != FIRING:
            return kinds.SUCCESS
        return kinds.FAILURE if message.severity == "critical" else kinds.WARNING


class _Said(logging.Handler):
    """The last of what the library logs on this thread: it tells nobody else why it failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread, self.last = threading.get_ident(), ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.last = record.getMessage()[:200]

    def __enter__(self) -> _Said:
        logging.getLogger(LOGGER).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(LOGGER).removeHandler(self)


def body_of(message: Message, repeat: bool) -> str:
    """What a person reads on a telephone: what, where, since when, and what to do."""
    targets = [
        one.name
        + (f": {one.reason}" if one.reason else f": {one.value:g}" if one.value is not None else "")
        for one in message.targets
    ]
    again = ["(sent again: the first may have arrived)"] if repeat else []
    return "\n".join([message.words, *targets, *([message.text] if message.text else []), *again])
