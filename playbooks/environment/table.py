"""The compatibility table (compatibility.toml), read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli

from engine.errors import ConfigError
from playbooks.environment.versions import begins, matches, parts

PATH = Path(__file__).with_name("compatibility.toml")
NAMES = ("python", "torch", "triton", "numpy", "driver", "cuda", "vllm", "flash-attn")
"""What a rule of `breaks` may be about."""


@dataclass(frozen=True)
class Rule:
    """Versions that do not work together."""

    id: str
    when: Mapping[str, str]
    """Every comparison holds: the pair is broken."""
    why: str
    remedy: str
    source: str

    def holds(self, versions: Mapping[str, str | None]) -> bool:
        known = {name: versions.get(name) for name in self.when}
        return all(v is not None and matches(v, self.when[name]) for name, v in known.items())


@dataclass(frozen=True)
class Table:
    data: Mapping[str, Any]
    breaks: tuple[Rule, ...]

    def text(self, table: str, key: str) -> str:
        return str(self.data[table][key])

    def triton_of(self, torch: str) -> str | None:
        """The Triton that this torch goes with; the longest entry that matches wins."""
        pairs: Mapping[str, str] = self.data["triton"]["of_torch"]
        found = [name for name in pairs if begins(torch, name)]
        return pairs[max(found, key=len)] if found else None

    def least_driver(self, cuda: str) -> str | None:
        major = parts(cuda)[:1]
        return self.data["driver"]["least"].get(str(major[0])) if major else None

    def least_capability(self, cuda: str) -> str | None:
        major = parts(cuda)[:1]
        return self.data["dropped"]["below"].get(str(major[0])) if major else None


@cache
def shipped() -> Table:
    return read_table(PATH)


def read_table(path: Path) -> Table:
    """Raises ConfigError for a table that is not complete."""
    try:
        data = tomli.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    rows = data.pop("breaks", [])
    try:
        rules = tuple(_rule(row, f"{path}, breaks {i + 1}") for i, row in enumerate(rows))
        for table, key in (("triton", "of_torch"), ("driver", "least"), ("dropped", "below")):
            data[table][key]
        for table in ("python", "libc", "triton", "driver", "dropped"):
            data[table]["source"]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path}: {error} is missing") from error
    return Table(data, rules)


def _rule(row: Mapping[str, Any], where: str) -> Rule:
    unknown = set(row) - {"id", "when", "why", "remedy", "source"}
    if unknown:
        raise ConfigError(f"{where}: unknown key {sorted(unknown)[0]!r}")
    rule = Rule(row["id"], row["when"], row["why"], row["remedy"], row["source"])
    for name, spec in rule.when.items():
        if name not in NAMES:
            raise ConfigError(f"{where}: {name!r} is not one of {', '.join(NAMES)}")
        matches("0", spec)  # refuses what is no comparison
    return rule
