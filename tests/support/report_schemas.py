"""The published JSON Schemas of the reports, and what in a report is not as they say."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from repository import ROOT

PUBLISHED = ROOT / "docs" / "schemas"


def violations(report: Any, kind: str) -> list[str]:
    """One line for each, of the report as JSON; NaN is no JSON."""
    schema = json.loads((PUBLISHED / f"{kind}.json").read_text("utf-8"))
    written = json.loads(json.dumps(report, allow_nan=False))
    found = jsonschema_rs.validator_for(schema).iter_errors(written)
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]
