"""ServerSettings: where the server listens, who may ask, and how much. Standard library only."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field

from engine.errors import ConfigError

KEY_SHORTEST = 8


@dataclass(frozen=True)
class ServerSettings:
    """Raises ConfigError for what cannot work, and for a public address without a key."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: any free one."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer token that everything but /health asks for."""
    insecure: bool = False
    """Serve a public address without a key."""
    served_name: str | None = None
    """The model's name to clients; None: its own."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that a Host header may have beside loopback ones, on a loopback address without a
    key: a web page that has its own name resolve to 127.0.0.1 is refused."""
    max_body: int = 1 << 20
    """Bytes of a request's body."""
    max_header: int = 16 << 10
    """Bytes of a request's head."""
    max_prompt_tokens: int | None = None
    """None: what the model and the KV pool hold."""
    max_choices: int = 64
    """Prompts × n of one request."""
    max_queue: int = 512
    """Choices that may wait beyond a full batch; more get 429."""
    max_connections: int = 1024
    head_s: float = 10.0
    """A request's head must be there so soon after its first byte, or the connection's start."""
    body_s: float = 20.0
    write_s: float = 60.0
    """A client that does not read what is sent is dropped."""
    request_s: float | None = None
    """Longest life of one request; None: the engine's own limit."""
    drain_s: float = 30.0
    """At the end what runs may finish for so long."""

    def __post_init__(self) -> None:
        _whole("port", self.port, 0, 65535)
        for name in ("max_body", "max_header", "max_choices", "max_connections"):
            _whole(name, getattr(self, name), 1, 1 << 40)
        _whole("max_queue", self.max_queue, 0, 1 << 40)
        if self.max_prompt_tokens is not None:
            _whole("max_prompt_tokens", self.max_prompt_tokens, 1, 1 << 40)
        for name in ("head_s", "body_s", "write_s"):
            _seconds(name, getattr(self, name))
        if self.request_s is not None:
            _seconds("request_s", self.request_s)
        if not 0 <= self.drain_s < math.inf:
            raise ConfigError(f"drain_s: expected seconds of at least 0, got {self.drain_s!r}")
        self._check_key()

    def _check_key(self) -> None:
        key = self.api_key
        if key is not None and not (
            len(key) >= KEY_SHORTEST and key.isascii() and key.isprintable() and " " not in key
        ):
            raise ConfigError(
                f"api_key: expected at least {KEY_SHORTEST} printable ASCII characters without "
                "spaces: other ones cannot be sent in a header"
            )
        if key is None and not self.insecure and not self.is_loopback:
            raise ConfigError(
                f"host {self.host}: others can reach this address; set --api-key (or "
                "EVEWATCH_API_KEY), or say --insecure if that is meant"
            )

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def checks_host(self) -> bool:
        """Whether the Host header is looked at."""
        return self.api_key is None and self.is_loopback


def is_loopback(host: str) -> bool:
    """A name counts as public unless it is localhost: where it leads may change."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}: expected a whole number from {low} to {high}, got {value!r}")


def _seconds(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}: expected seconds above 0, got {value!r}")
