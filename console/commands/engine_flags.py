"""What a command line says about the embedded engine: five flags, and --set for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import ConfigError

if TYPE_CHECKING:
    from console.commands.output import Output
    from engine.config import EngineConfig

FLAGS: dict[str, Any] = {
    "model": Annotated[
        str | None,
        typer.Option("--model", help="`embedded`, a Hugging Face folder, or a GGUF file."),
    ],
    "device": Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")],
    "kv_format": Annotated[
        str | None,
        typer.Option(
            "--kv-format",
            help="int8_channel (default), k8v4, k4v4, int8_token, int8_static, int8_tensor or "
            "fp16.",
        ),
    ],
    "kv_memory": Annotated[
        str | None, typer.Option("--kv-memory", help="Memory for the KV cache, e.g. 512M or 2G.")
    ],
    "max_batch": Annotated[
        int | None, typer.Option("--max-batch", help="Most sequences that run at once (48).")
    ],
}
SETTINGS = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting of the engine, like token_budget=128; may be repeated.",
    ),
]


class EngineFlags:
    """`given` holds the settings that were given, each with its type. Raises ConfigError."""

    OPTIONS = FLAGS | {"settings": SETTINGS}

    def __init__(self, settings: Sequence[str] | None = None, **flags: Any) -> None:
        from engine.config import parse_size

        self.set = dict(parse_setting(text, "--set") for text in settings or ())
        """What was given with --set alone."""
        self.given = {name: value for name, value in flags.items() if value is not None}
        if "kv_memory" in self.given:
            self.given["kv_memory"] = parse_size(self.given["kv_memory"])
        for name in self.given.keys() & self.set.keys():
            raise ConfigError(f"{name}: is given as {_flag(name)} and with --set; leave one out")
        self.given |= self.set

    @property
    def model(self) -> str | None:
        return self.given.get("model")

    def config(self, **defaults: Any) -> EngineConfig:
        """Settings from file, environment and flags, over a command's own defaults."""
        from console.commands.settings import engine_config
        from engine.config import parse_size

        if "kv_memory" in defaults:
            defaults["kv_memory"] = parse_size(defaults["kv_memory"])
        return engine_config(self.given, defaults)

    def config_over(self, base: Path | None, **defaults: Any) -> EngineConfig:
        """The same with a file of its own, where one is named."""
        from engine.config import EngineConfig

        if base is None:
            return self.config(**defaults)
        return EngineConfig.from_toml(base, defaults=defaults, **self.given)

    def refuse(self, why: str, *but: str) -> None:
        """Raises ConfigError for what was given and only the embedded engine has."""
        for name in self.given:
            if name not in but:
                raise ConfigError(f"{_flag(name)}: {why}")

    def refuse_at(self, target: str, *but: str) -> None:
        """Raises ConfigError for what was given and has no meaning for a target elsewhere."""
        from engine.remote.address import shown

        self.refuse(f"sets the embedded engine, and the target is {shown(target)}", *but)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}" if name in FLAGS else f"--set {name}"


def parse_setting(text: str, flag: str) -> tuple[str, Any]:
    """ "max_batch=4" -> ("max_batch", 4). Raises ConfigError."""
    from engine.config import parse_field

    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise ConfigError(f"{flag} {text!r}: expected setting=value, like kv_format=fp16")
    return name, parse_field(name, value)


def parse_change(text: str) -> dict[str, Any]:
    """ "policy=static,reserve=max" -> settings. Raises ConfigError."""
    return dict(parse_setting(part, "--change") for part in text.split(","))


def note_backend(engine: Any, output: Output) -> None:
    """Say when the kernels are the slow ones, and what is odd about the model's files."""
    for note in engine.compute.notes:
        output.note(note)
