"""The published schemas say what is wrong with a report; each is one of a kind that is shown."""

import pytest

from playbooks.reports.documents import MAKERS
from report_schemas import PUBLISHED, violations

GOOD = {
    "schema": 1, "kind": "options", "sort": "id",
    "options": [{
        "id": "int8_kv", "title": "INT8 KV", "setting": "kv_format", "available": True, "gain": "x",
        "measured": None, "unmeasured": "w", "elsewhere": "y", "source": "z",
        "claim": "reported elsewhere",
        "risk": "low", "risk_level": 1, "risk_note": "", "cost": "low", "cost_level": 1,
        "cost_note": "", "rollback": "",
    }],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"measured": {"free": [1]}}, None),
        ({"measured": "1"}, "options.0.measured"),
        ({"risk": "none"}, "not one of"),
        ({"risk_level": 2.5}, "integer"),
        ({"risk_level": True}, "integer"),
        ({"available": 1}, "boolean"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_not_as_published_is_named(changes, why):
    found = violations(GOOD | {"options": [GOOD["options"][0] | changes]}, "options")
    assert len(found) == (why is not None)
    assert why is None or why in found[0]


def test_what_is_missing_is_named():
    assert "sort" in violations({k: v for k, v in GOOD.items() if k != "sort"}, "options")[0]


def test_nan_is_no_json():
    with pytest.raises(ValueError, match="JSON"):
        violations(GOOD | {"sort": float("nan")}, "options")


def test_every_schema_is_of_a_report_that_can_be_shown():
    kinds = {path.stem for path in PUBLISHED.glob("*.json")} - {
        "alert",
        "log_record",
        "playbook_file",
    }
    assert kinds <= set(MAKERS)
