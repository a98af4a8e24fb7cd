"""On what terms a check runs, as an operator says them: on the command line or on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError
from playbooks.outside.care import Care, parse_guards, parse_share
from playbooks.runs.history import History
from playbooks.usual import own_place

NO_USUAL = "none"


@dataclass(frozen=True)
class Terms:
    """By default: nothing is guarded, no storms, and held against the user's own usual figures."""

    guards: tuple[str, ...] = ()
    """NAME=VALUE each."""
    max_share: str | None = None
    """Like 20%."""
    disruptive: bool = False
    usual: str | None = None
    """A file of figures, or none; None: the user's own."""
    accept: bool = False

    def refuse_inside(self) -> None:
        """Raises ConfigError for what only a target that others use can be asked."""
        given = {"guard": self.guards, "max-share": self.max_share, "disruptive": self.disruptive}
        for flag, value in given.items():
            if value:
                raise ConfigError(f"--{flag}: is of a target that others use: for --target URL")

    def care(self) -> Care:
        """With a target that others use. Raises ConfigError."""
        share = None if self.max_share is None else parse_share(self.max_share)
        return Care(parse_guards(self.guards), share, self.disruptive)

    def history(self) -> History | None:
        """What the run is held against, and kept in; None: nothing. Raises ConfigError."""
        if self.usual == NO_USUAL:
            if self.accept:
                raise ConfigError(
                    "check: --accept keeps this run's figures, --usual none keeps none"
                )
            return None
        if self.usual is not None and not self.usual.endswith(".json"):
            raise ConfigError(f"--usual {self.usual}: expected a file that ends in .json, or none")
        return History(Path(self.usual) if self.usual is not None else own_place(), self.accept)

    def words(self, at_url: bool) -> str:
        """One line for whoever is asked whether it may run."""
        said = []
        if at_url:
            said += [
                f"guards {', '.join(self.guards)}" if self.guards else "no guards",
                f"{self.max_share} of its requests at most" if self.max_share
                else "any share of its requests",
                "storms allowed" if self.disruptive else "no storms",
            ]  # fmt: skip
        if self.usual is None:
            said.append("held against the last healthy runs")
        elif self.usual == NO_USUAL:
            said.append("held against nothing")
        else:
            said.append(f"held against {self.usual}")
        if self.accept:
            said.append("usual from now on, whatever comes out")
        return "; ".join(said)
