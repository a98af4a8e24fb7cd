"""`evewatch model`: what model files hold, without loading weights."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from console.commands.common import Json, Out, emit
from engine.errors import ModelError

model_app = typer.Typer(help="What model files hold.", no_args_is_help=True, rich_markup_mode=None)


@model_app.command("info")
def model_info(
    model: Annotated[str, typer.Argument(help="`embedded`, a folder or a GGUF file.")] = "embedded",
    as_json: Json = False,
    out: Out = None,
) -> None:
    """Architecture, size and encodings of a model."""
    from console.commands.report import model_table
    from engine import models

    found = models.describe(models.resolve(model))
    report = {
        "schema": 1,
        "kind": "model",
        "path": str(found.path),
        "identity": found.identity,
        "parameters": found.parameters,
        "file_bytes": found.file_bytes,
        "encodings": found.encodings,
        **asdict(found.spec),
    }
    emit(report, as_json, out, model_table)


@model_app.command("list")
def model_list(as_json: Json = False, out: Out = None) -> None:
    """Models that load by name."""
    from console.commands.report import model_list_table
    from engine import models

    found, note = [], None
    try:
        path = models.resolve("embedded")
        found.append({"name": "embedded", "file": path.name, "bytes": path.stat().st_size})
    except ModelError as error:
        note = str(error)
    report = {"schema": 1, "kind": "models", "models": found, "note": note}
    emit(report, as_json, out, model_list_table)
