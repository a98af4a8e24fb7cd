"""JSON Schema of playbook files, from the models: for editors that complete and check TOML.

Written to docs/schemas/playbook_file.json by `evewatch playbook schema`.
"""

from __future__ import annotations

from typing import Any

from checklists.tomlfile import adapter
from playbooks.runs.spec import PlaybookFile
from playbooks.steps.metrics import FACT
from playbooks.steps.registry import STEP_TYPES, StepType

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def playbook_schema() -> dict[str, Any]:
    """Of a whole file. What `with` and `gates` of a step may say depends on its `kind`."""
    schema = adapter(PlaybookFile).json_schema(by_alias=True)
    schema["required"] = ["steps"]
    definitions = schema.pop("$defs")
    for step in STEP_TYPES.values():
        model = adapter(step.model).json_schema()
        definitions |= model.pop("$defs", {})
        definitions[step.model.__name__] = model
    table = definitions["StepToml"]
    table["properties"]["kind"] = {"enum": list(STEP_TYPES)}
    table["allOf"] = [_of_kind(step) for step in STEP_TYPES.values()]
    # not shown
    return {"$schema": DIALECT, **schema, "title": "evewatch playbook", "$defs": definitions}


def _of_kind(step: StepType) -> dict[str, Any]:
    gates = [name for name, about in step.metrics.items() if not about.startswith(FACT)]
    gate = {"properties": {"metric": {"enum": gates}}}
    return {
        "if": {"properties": {"kind": {"const": step.name}}},
        "then": {
            "description": step.about,
            "properties": {
                "with": {"$ref": f"#/$defs/{step.model.__name__}"},
                "gates": {"items": gate},
            },
        },
    }
