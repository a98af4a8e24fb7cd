"""The published schemas are those of the code, and the check finds what is wrong."""

import json
from typing import Any, Literal, TypedDict

import pytest

from playbooks.reports import schemas
from playbooks.reports.schemas import schema_of, text_of, violations, write_all
from playbooks.reports.shapes import REPORTS
from repository import ROOT

PUBLISHED = ROOT / "docs" / "schemas"


@pytest.mark.parametrize("kind", list(REPORTS))
def test_what_is_published_is_what_the_code_says(kind):
    text = (PUBLISHED / f"{kind}.json").read_text("utf-8")
    assert text == text_of(kind), "run: python -m playbooks.reports.schemas docs/schemas"


def test_they_can_be_written_anywhere(tmp_path):
    assert [path.stem for path in write_all(tmp_path / "new")] == list(REPORTS)
    assert json.loads((tmp_path / "new" / "sweep.json").read_text()) == schema_of("sweep")


class Inner(TypedDict):
    n: int


class Outer(TypedDict):
    name: str
    kind: Literal["a", "b"]
    value: float | None
    rows: list[Inner]
    free: dict[str, Any]
    flag: bool


GOOD = {"name": "x", "kind": "a", "value": 1, "rows": [{"n": 2}], "free": {"k": [1]}, "flag": True}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"value": None}, None),
        ({"value": "1"}, "$.value"),
        ({"kind": "c"}, "not one of"),
        ({"rows": [{"n": 2}, {"n": 2.5}]}, "$.rows[1].n"),
        ({"rows": [{}]}, "n is missing"),
        ({"rows": [{"n": True}]}, "no integer"),
        ({"extra": 1}, "extra is not known"),
        ({"flag": 1}, "$.flag"),
        ({"free": 3}, "no object"),
    ],
)
def test_violations(monkeypatch, changes, why):
    monkeypatch.setitem(schemas.REPORTS, "outer", Outer)
    found = list(violations(GOOD | changes, schema_of("outer")))
    if why is None:
        assert found == []
    else:
        assert len(found) == 1
        assert why in found[0]


def test_a_type_that_has_no_schema_is_a_bug():
    with pytest.raises(TypeError, match="no schema"):
        schemas._schema(set[int])
