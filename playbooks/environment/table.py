"""The compatibility table (compatibility.toml), read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from checklists.tomlfile import STRICT, TomlFile
from engine.errors import ConfigError
from playbooks.environment.versions import begins, matches, parts
from playbooks.steps.fields import Reads

PATH = Path(__file__).with_name("compatibility.toml")
NAMES = ("python", "torch", "triton", "numpy", "driver", "cuda", "vllm", "flash-attn")
"""What a rule of `breaks` may be about."""


@dataclass(frozen=True)
class PythonVersions:
    __pydantic_config__ = STRICT
    least: str
    known: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class LibcVersion:
    """glibc that torch's Linux wheels need, from which torch on."""

    __pydantic_config__ = STRICT
    torch: str
    least: str
    source: str


@dataclass(frozen=True)
class TritonVersions:
    __pydantic_config__ = STRICT
    source: str
    remedy: str
    of_torch: dict[str, str]


@dataclass(frozen=True)
class DriverVersions:
    __pydantic_config__ = STRICT
    source: str
    remedy: str
    least: dict[str, str]
    """By major version of CUDA."""


@dataclass(frozen=True)
class DroppedCapabilities:
    __pydantic_config__ = STRICT
    source: str
    below: dict[str, str]
    """By major version of CUDA."""


@dataclass(frozen=True)
class BrokenPair:
    """Versions that do not work together."""

    __pydantic_config__ = STRICT
    id: str
    when: Annotated[dict[str, str], Reads("playbooks.environment.table:check_comparisons")]
    """Every comparison holds: the pair is broken."""
    why: str
    remedy: str
    source: str

    def holds(self, versions: Mapping[str, str | None]) -> bool:
        known = {name: versions.get(name) for name in self.when}
        return all(v is not None and matches(v, self.when[name]) for name, v in known.items())


def check_comparisons(when: Mapping[str, str]) -> None:
    """Raises ConfigError for a name that is not known, and for what is no comparison."""
    for name, comparison in when.items():
        if name not in NAMES:
            raise ConfigError(f"{name!r} is not one of {', '.join(NAMES)}")
        matches("0", comparison)


@dataclass(frozen=True)
class CompatibilityTable:
    __pydantic_config__ = STRICT
    python: PythonVersions
    libc: LibcVersion
    triton: TritonVersions
    driver: DriverVersions
    dropped: DroppedCapabilities
    breaks: tuple[BrokenPair, ...] = ()
    schema: Literal[1] = 1

    def triton_of(self, torch: str) -> str | None:
        """The Triton that this torch goes with; the longest entry that matches wins."""
        found = [name for name in self.triton.of_torch if begins(torch, name)]
        return self.triton.of_torch[max(found, key=len)] if found else None

    def least_driver(self, cuda: str) -> str | None:
        major = parts(cuda)[:1]
        return self.driver.least.get(str(major[0])) if major else None

    def least_capability(self, cuda: str) -> str | None:
        major = parts(cuda)[:1]
        return self.dropped.below.get(str(major[0])) if major else None


@cache
def shipped() -> CompatibilityTable:
    return read_table(PATH)


def read_table(path: Path) -> CompatibilityTable:
    """Raises ConfigError for a table that is not complete."""
    return TomlFile(path, "compatibility table").read(CompatibilityTable)
