"""What the commands share: their common options, settings, progress and reports.

Imports neither torch nor rich before they are needed: `evewatch --help` reads this file.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.config import EngineConfig

Model = Annotated[
    str | None,
    typer.Option("--model", help="`embedded`, a Hugging Face folder, or a GGUF file."),
]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")]
Kernels = Annotated[str | None, typer.Option("--kernels", help="auto, cpu, triton or reference.")]
RequireTriton = Annotated[
    bool | None,
    typer.Option("--require-triton", help="Stop unless the Triton kernels run."),
]
CudaGraphs = Annotated[
    bool | None,
    typer.Option("--cuda-graphs/--no-cuda-graphs", help="Replay decode batches as CUDA graphs."),
]
KvFormat = Annotated[
    str | None,
    typer.Option(
        "--kv-format",
        help="int8_channel (default), int8_token, int8_static, int8_tensor or fp16.",
    ),
]
KvMemory = Annotated[
    str | None, typer.Option("--kv-memory", help="Memory for the KV cache, e.g. 512M or 2G.")
]
MaxBatch = Annotated[
    int | None, typer.Option("--max-batch", help="Most sequences that run at once (48).")
]
TokenBudget = Annotated[
    int | None, typer.Option("--token-budget", help="Most tokens computed in one step (256).")
]
PageTokens = Annotated[
    int | None, typer.Option("--page-tokens", help="Tokens of a KV page: 16 (default) or 32.")
]
OutlierChannels = Annotated[
    int | None,
    typer.Option("--outlier-channels", help="K channels per head that a page can keep in hp (4)."),
]
ZeroPoint = Annotated[
    bool | None,
    typer.Option("--zero-point/--symmetric", help="A zero beside every scale (symmetric)."),
]
CalibrationFile = Annotated[
    str | None,
    typer.Option("--calibration", help="Outlier channels and static scales from this file."),
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", help="continuous, or static: the classical baseline."),
]
Allocator = Annotated[
    str | None,
    typer.Option("--allocator", help="paged, or contiguous: the baseline before paging."),
]
Reserve = Annotated[
    str | None,
    typer.Option("--reserve", help="Room at admission: known, final or max (longest context)."),
]
PrefixCache = Annotated[
    bool | None,
    typer.Option("--prefix-cache/--no-prefix-cache", help="Reuse pages of equal beginnings."),
]
DynamicBatch = Annotated[
    bool | None, typer.Option("--dynamic/--fixed", help="Let the cap move with the queue (fixed).")
]
TpotObjective = Annotated[
    float | None,
    typer.Option("--tpot-objective", help="Milliseconds that a moving cap keeps a step below."),
]
MaxWait = Annotated[
    float | None,
    typer.Option("--max-wait", help="Milliseconds until a static batch starts unfilled (1000)."),
]
ENGINE_OPTIONS: dict[str, Any] = {
    "model": Model,
    "device": Device,
    "kernels": Kernels,
    "require_triton": RequireTriton,
    "cuda_graphs": CudaGraphs,
    "kv_format": KvFormat,
    "kv_memory": KvMemory,
    "page_tokens": PageTokens,
    "outlier_channels": OutlierChannels,
    "zero_point": ZeroPoint,
    "calibration": CalibrationFile,
    "max_batch": MaxBatch,
    "token_budget": TokenBudget,
    "policy": Policy,
    "allocator": Allocator,
    "reserve": Reserve,
    "prefix_cache": PrefixCache,
    "dynamic_batch": DynamicBatch,
    "tpot_objective_ms": TpotObjective,
    "max_wait_ms": MaxWait,
}
"""Settings of EngineConfig that every command on an embedded engine takes."""

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Out = Annotated[Path | None, typer.Option("--out", help="Also write the JSON report to this file.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ENGINE_OPTIONS; it gets those that were given as the dict `flags`."""
    own = inspect.signature(command, eval_str=True)
    parameters = [p for name, p in own.parameters.items() if name != "flags"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in ENGINE_OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        flags = {name: given.pop(name) for name in ENGINE_OPTIONS}
        command(**given, flags=flags)

    everything = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters] + shared
    run.__signature__ = own.replace(parameters=everything)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in everything}
    return run


def settings(defaults: dict[str, Any], **flags: Any) -> EngineConfig:
    """Settings from file, environment and flags, over a command's own defaults."""
    from console.commands.settings import engine_config
    from engine.config import parse_size

    for table in (defaults, flags):
        if isinstance(table.get("kv_memory"), str):
            table["kv_memory"] = parse_size(table["kv_memory"])
    return engine_config(flags, defaults)


def note_backend(engine: Any, quiet: bool) -> None:
    """Say on standard error when the kernels are the slow ones."""
    if engine.backend.name == "reference" and not quiet:
        typer.echo(f"evewatch: {engine.backend.reason}", err=True)


def emit(
    report: dict[str, Any],
    as_json: bool,
    out: Path | None,
    show: Callable[[dict[str, Any]], None],
) -> None:
    """The report to standard output, as JSON or for people, and to a file if asked."""
    text = json.dumps(report, allow_nan=False, ensure_ascii=False, default=_jsonable)
    if out is not None:
        try:
            out.write_text(text + "\n", "utf-8")
        except OSError as error:
            raise ConfigError(f"--out {out}: cannot be written ({error.strerror})") from error
    if as_json:
        sys.stdout.write(text + "\n")
    else:
        show(report)


def _jsonable(value: object) -> object:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


@contextmanager
def progress_bar(what: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; plain silence when it is no terminal or not wanted."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
