"""An engine somewhere else, as the steps of one check see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from engine.observing.host import Witness
from engine.snapshot import Snapshot
from playbooks.diagnosis import Restarts
from playbooks.load.endpoint import EndpointSpec
from playbooks.measure.witnessed import process_at, witness_at
from playbooks.outside.care import Care
from playbooks.outside.journal import Journal
from playbooks.outside.watch import Watch


@dataclass(frozen=True)
class UrlSite:
    url: str
    api: str = "completions"
    key: str | None = field(default=None, repr=False)
    """Bearer token."""
    pid: int | None = None
    """Of the engine's process on this machine; None: found by its port, if it is here."""
    care: Care = field(default_factory=Care)
    least_watch_s: float = 45.0
    """A soak lasts until the target was watched so long: what restarts every 20 s is seen."""
    replicas: tuple[str, ...] = ()
    """URLs of other replicas of the same service, to be held against this one."""
    journal: Journal = field(default_factory=Journal, repr=False, compare=False)
    """Of all requests that the check has sent, to whatever address."""

    @property
    def spec(self) -> EndpointSpec:
        return EndpointSpec(self.url, api=self.api, key=self.key)

    @property
    def group(self) -> list[UrlSite]:
        """All replicas, this one first."""
        return [self, *map(self.beside, self.replicas)]

    def beside(self, url: str) -> UrlSite:
        """Another engine that the same check sends to: with the same care, in the same journal."""
        return replace(self, url=url, pid=None, replicas=())

    def witness(self) -> Witness | None:
        """Of its host, if that is this one. Raises ConfigError for a pid that is nobody's."""
        return witness_at(self.spec.address.origin, self.pid)

    @cached_property
    def process(self) -> int | None:
        """Of the engine, if it is on this machine and not this process itself."""
        return process_at(self.spec.address.origin, self.pid)

    @cached_property
    def watch(self) -> Watch:
        return Watch(self.spec.base, self.key)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While a step, or the whole check, goes on."""
        with self.watch.on():
            yield

    @property
    def newest(self) -> Snapshot | None:
        """The latest live Snapshot, if the latest is live."""
        last = self.watch.newest
        return last if last is not None and last.source.state == "live" else None

    @property
    def kind(self) -> dict[str, Any]:
        """What makes runs against it comparable; None: not told."""
        told = self.watch.told
        return {
            "url": self.spec.base,
            "version": self.watch.version,
            "model": told.engine.model if told else None,
            "kv_format": told.kv.format if told else None,
            "device": None,
        }

    def facts(self) -> Mapping[str, Any]:
        """What every step that sends requests adds to: tail, broken streams, restarts."""
        told = self.watch.told
        return {
            **self.journal.facts(),
            "restarts": Restarts(self.watch.restarts, self.watch.seconds) if told else None,
            "engine": told.source.engine if told else None,
        }
