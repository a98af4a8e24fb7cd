"""What the measuring commands share: exports, and keeping a result for later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from console.commands.common import emit
from console.exits import Exit
from engine.errors import ConfigError

Export = Annotated[
    list[Path] | None,
    typer.Option(
        "--export", help="Also write it as .json, .jsonl, .csv, .md or .html; may be repeated."
    ),
]
Lengths = Annotated[
    str,
    typer.Option(
        "--lengths",
        help="chat, code, lognormal:PROMPT,OUTPUT[,SIGMA], uniform:A-B,C-D, fixed:PROMPT,OUTPUT "
        "or a trace file; each may end in *FACTOR.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Of times, lengths and prompts.")]
CODES = {
    "pass": Exit.PASSED,
    "warn": Exit.PASSED,
    "fail": Exit.GATE_FAILED,
    "inconclusive": Exit.INCONCLUSIVE,
}
FORMATS = (".json", ".jsonl", ".csv", ".md", ".html")


def check_exports(paths: list[Path] | None) -> None:
    """Before a long measurement rather than after it."""
    for path in paths or ():
        if path.suffix.lower() not in FORMATS:
            raise ConfigError(f"--export {path}: expected a name ending in {', '.join(FORMATS)}")
        if not path.parent.is_dir():
            raise ConfigError(f"--export {path}: there is no folder {path.parent}")


def finish(
    report: dict[str, Any],
    as_json: bool,
    out: Path | None,
    exports: list[Path] | None,
    quiet: bool,
    keep: bool = True,
) -> Path | None:
    """Keep it, write it, show it. Returns the file that it is kept in."""
    from console.commands.documents import show_document
    from playbooks.reports import results
    from playbooks.reports.report import export

    kept = None
    if keep:
        try:
            kept = results.save(report)
        except ConfigError as error:  # the measurement itself is not lost for it
            if not quiet:
                typer.echo(f"evewatch: not kept for later: {error}", err=True)
    for path in exports or ():
        export(report, path)
    emit(report, as_json, out, show_document)
    return kept
