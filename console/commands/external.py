"""`evewatch up --engine vllm`: vLLM's own server as a child."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.alerting import alone, keeping
from console.commands.engine_flags import EngineFlags
from console.commands.settings import objectives
from console.commands.signals import ended_by
from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.observing.objectives import Objective
    from engine.remote.engine import RemoteEngine

TensorParallel = Annotated[
    int | None, typer.Option(help="With --engine vllm: GPUs that share each layer.")
]
PipelineParallel = Annotated[int | None, typer.Option(help="With --engine vllm: stages of layers.")]
DataParallel = Annotated[int | None, typer.Option(help="With --engine vllm: copies of the model.")]
Extra = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGS", help="With --engine vllm, after --: passed on to `vllm serve`."),
]
VLLM = "vllm"
PASSED_ON = ("model", "max_batch")
"""Engine options that vLLM's server has too."""


@dataclass(frozen=True)
class External:
    """What the flags say about an engine that is not the embedded one."""

    engine: str | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    data_parallel: int | None
    extra: list[str] | None

    @property
    def wanted(self) -> bool:
        """Raises ConfigError for flags that only make sense with --engine vllm."""
        if self.engine != VLLM:
            for name in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"--{name.replace('_', '-')}: only with --engine vllm")
            if self.extra:
                raise ConfigError(f"{self.extra[0]!r}: unexpected; only --engine vllm passes it on")
        if self.engine is not None and "://" in self.engine:
            from engine.remote.address import shown

            raise ConfigError(f"`up --engine URL` is now `evewatch watch {shown(self.engine)}`")
        if self.engine not in (None, VLLM):
            raise ConfigError(f"--engine {self.engine}: expected vllm; `evewatch watch URL` shows "
                              "an engine that runs already")  # fmt: skip
        return self.engine is not None

    def refuse(self, **flags: Any) -> None:
        """Those given that only the embedded engine has."""
        for name, value in flags.items():
            if value is not None:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag}: only the embedded engine has it; leave out --engine")

    def run(self, flags: EngineFlags, readonly: bool, alerts: Path | None) -> None:
        flags.refuse("only the embedded engine has it; leave out --engine", *PASSED_ON)
        promised = objectives()
        engine = self._build(flags.given, promised.each if promised is not None else ())
        if not sys.stdout.isatty():
            raise ConfigError("up: needs a terminal; use `evewatch watch --once` in scripts")
        from console.app import build_app
        from console.commands.run_console import run_console

        try:
            # A child has a session of its own: it would outlive a closed terminal or a `kill`.
            with (
                ended_by(SIGTERM, SIGHUP, by=lambda number: SystemExit(128 + number)),
                keeping(alerts, alone(engine), objectives=promised) as keeper,
            ):
                run_console(build_app(engine, readonly=readonly, keeper=keeper))
        finally:
            engine.stop()

    def _build(self, flags: dict[str, Any], promised: Sequence[Objective]) -> RemoteEngine:
        from engine.remote.child import ChildEngine, VllmSpec

        if not flags.get("model"):
            raise ConfigError("--engine vllm: name the model with --model (a folder, or a hub's)")
        return ChildEngine(
            VllmSpec(
                flags["model"],
                self.tensor_parallel,
                self.pipeline_parallel,
                self.data_parallel,
                flags.get("max_batch"),
                extra=tuple(self.extra or ()),
            ),
            objectives=promised,
        )
