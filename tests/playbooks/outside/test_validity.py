"""Answers judged by their form: JSON of the asked shape, and calls of tools that there are."""

import json

import pytest

from playbooks.outside.validity import JSON_CASES, TOOL_CASES, tool_request, valid_call, valid_json

ORDER = JSON_CASES[0].schema


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('{"product": "folding table", "quantity": 40}', True),
        ('```json\n{"product": "folding table", "quantity": 40}\n```\nDone.', True),
        ('{"product": "folding table", "quantity": "forty"}', False),
        ('{"product": "folding table", "quantity": true}', False),
        ('{"product": "folding table"}', False),
        ('["folding table", 40]', False),
        ('{"product": "folding table", "quantity": 4', False),
        ("forty", False),
        ("", False),
    ],
)
def test_json_has_the_keys_and_types_that_were_asked_for(text, good):
    assert valid_json(text, ORDER) is good


def test_what_is_inside_is_looked_at_too():
    nested = next(case.schema for case in JSON_CASES if case.id == "json-nested")
    assert valid_json('{"items": [{"name": "cup", "price": 4}]}', nested)
    assert not valid_json('{"items": [{"name": "cup", "price": "4"}]}', nested)
    assert not valid_json('{"items": {"name": "cup", "price": 4}}', nested)


def called(*calls):
    made = [{"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls]  # fmt: skip
    return {"message": {"content": None, "tool_calls": made}, "finish_reason": "tool_calls"}


@pytest.mark.parametrize(
    ("choice", "good"),
    [
        (called(("get_weather", '{"city": "Oslo", "unit": "celsius"}')), True),
        (called(("add_numbers", '{"a": 1, "b": 2.5}'), ("add_numbers", '{"a": 3, "b": 4}')), True),
        (called(("add_numbers", '{"a": 1, "b": 2.5}'), ("order", '{"product": "x"}')), False),
        (called(("get_weather", '{"city": "Oslo", "unit": "kelvin"}')), False),
        (called(("get_wether", '{"city": "Oslo", "unit": "celsius"}')), False),
        (called(("get_weather", '{"city": "Oslo", "unit": ')), False),
        (called(("get_weather", '["Oslo"]')), False),
        (called(("get_weather", {"city": "Oslo", "unit": "celsius"})), False),
        (called(), False),
        ({"message": {"content": "It is warm.", "tool_calls": None}}, False),
        ({"text": "It is warm."}, False),
    ],
)  # fmt: skip
def test_a_call_names_a_tool_that_there_is_with_arguments_that_fit(choice, good):
    assert valid_call(choice) is good


def test_what_is_asked_is_json_and_names_every_tool():
    for case in TOOL_CASES:
        asked = json.loads(json.dumps(tool_request(case)))
        assert len({tool["function"]["name"] for tool in asked["tools"]}) == 3
