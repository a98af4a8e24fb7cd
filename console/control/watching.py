"""The console on external engines: one is shown at once, of several the fleet first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.app import Console, build_app
from engine.remote.fleet.fleet_engine import FleetEngine

if TYPE_CHECKING:
    from engine.remote.fleet.fleet import Fleet


def build_watch(fleet: Fleet, readonly: bool = False, **options: object) -> Console:
    """Started and stopped by the console; see build_app for the options."""
    if len(fleet.engines) == 1:
        engine = next(iter(fleet.engines.values()))
        return build_app(engine, readonly=readonly, **options)  # type: ignore[arg-type]
    return build_app(FleetEngine(fleet), readonly=readonly, **options)  # type: ignore[arg-type]
