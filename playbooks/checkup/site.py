"""Where a playbook's steps run: the embedded engine, with a fault in it if that was asked for.

The weights are read once and shared by the engines of all steps. A fault lives in the engines
that come from here and in nothing else: they end with their step, and with them the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.config import EngineConfig
from engine.core import Engine
from engine.execution.calibration import Calibration
from engine.models import LoadedModel
from engine.observing.host import Look
from playbooks.load.targets import EmbeddedTarget
from playbooks.measure.trial import warm_up

Touch = Callable[[Engine], AbstractContextManager[None]]
"""Changes a running engine that nobody uses yet; leaving puts everything back."""


@dataclass(frozen=True)
class Alteration:
    """What a fault does. Nothing by default."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of EngineConfig, over the given ones."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of load steps, over the playbook's."""
    loaded: LoadedModel | None = None
    """Other weights."""
    calibration: Calibration | None = None
    touch: Touch | None = None
    look: Look | None = None
    """How the host is read; None: as it is."""
    target: type[EmbeddedTarget] | None = None
    """Another way of sending requests."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions that the environment step is told instead of the real ones."""


class Site:
    """Raises what the engine raises, when it is first needed."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel | None = None,
        alteration: Alteration = Alteration(),
    ) -> None:
        self.plain_config = config
        self.alteration = alteration
        self._loaded = loaded

    @property
    def config(self) -> EngineConfig:
        return self.plain_config.with_(**self.alteration.settings)

    @property
    def loaded(self) -> LoadedModel:
        """The weights, with the fault's if it has some."""
        return self.alteration.loaded or self.plain_loaded

    @property
    def plain_loaded(self) -> LoadedModel:
        if self._loaded is None:
            with self._running(self.plain_config, None):
                pass
        assert self._loaded is not None
        return self._loaded

    def altered(self, alteration: Alteration) -> Site:
        """The same machine and weights with a fault."""
        return Site(self.plain_config, self.plain_loaded, alteration)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """A running, warm engine, with the fault in it."""
        with self._running(self.config, self.alteration.loaded) as engine, ExitStack() as stack:
            warm_up(engine)
            if self.alteration.touch is not None:
                stack.enter_context(self.alteration.touch(engine))
            yield engine

    @contextmanager
    def _running(self, config: EngineConfig, loaded: LoadedModel | None) -> Iterator[Engine]:
        engine = Engine(config, loaded or self._loaded, calibration=self.alteration.calibration)
        with engine:
            if self._loaded is None and loaded is None:
                self._loaded = engine.loaded
            yield engine
