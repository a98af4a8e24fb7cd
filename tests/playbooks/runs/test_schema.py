"""The JSON Schema of playbook files: as published, and it says what the reader says."""

import json

import pytest
import tomli
from jsonschema_rs import Draft202012Validator

from playbooks.runs import spec
from playbooks.runs.schema import playbook_schema
from playbooks.steps.fields import fields_of
from playbooks.steps.registry import STEP_TYPES
from repository import ROOT

VALIDATOR = Draft202012Validator(playbook_schema())


def test_what_is_published_is_what_the_models_say():
    published = json.loads((ROOT / "docs/schemas/playbook_file.json").read_text("utf-8"))
    hint = "run: evewatch playbook schema --out docs/schemas/playbook_file.json"
    assert published == playbook_schema(), hint


@pytest.mark.parametrize("name", spec.names())
def test_the_playbooks_that_ship_are_valid(name):
    data = tomli.loads((spec.FOLDER / f"{name}.toml").read_text("utf-8"))
    assert list(VALIDATOR.iter_errors(data)) == []


@pytest.mark.parametrize(
    "step",
    [
        {"kind": "lod"},
        {"kind": "load", "with": {"reqests": 3}},
        {"kind": "load", "with": {"requests": 0}},
        {"kind": "soak", "with": {"arrivals": "closed:2"}},
        {"kind": "sweep", "with": {"batches": ["x"]}},
        {"kind": "load", "gates": [{"metric": "missed", "op": "<", "value": 1}]},
        {"kind": "load", "gates": [{"metric": "curve", "op": "<", "value": 1}]},
        {"kind": "load", "gates": [{"metric": "knee", "op": "=<", "value": 1}]},
    ],
)
def test_what_is_wrong_is_seen(step):
    assert list(VALIDATOR.iter_errors({"steps": [step]}))


def test_every_parameter_says_what_it_is():
    for step in STEP_TYPES.values():
        for field in fields_of(step.model):
            assert field.option.help, f"{step.name}.{field.name}"
