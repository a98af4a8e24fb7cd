"""Parameters of steps set from outside: read, checked together, and named when they do not fit."""

from pathlib import Path

import pytest

from engine.errors import ConfigError
from playbooks.runs import spec
from playbooks.runs.overrides import with_parameters

BOOK = spec.read('[[steps]]\nkind = "soak"\n[[steps]]\nkind = "environment"', Path("mine.toml"))


@pytest.mark.parametrize("texts", [("waves=300", "requests=600"), ("requests=600", "waves=300")])
def test_values_that_need_each_other_come_in_any_order(texts):
    soak, environment = with_parameters(BOOK, texts).steps
    assert (soak.parameters.waves, soak.parameters.requests) == (300, 600)
    assert environment is BOOK.steps[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("waves=300", "--with soak.requests: fewer than 300; every wave needs one"),
        ("waves=2", "--with soak.waves: expected at least 4, got 2"),
        ("soak.storms=7", "--with soak.storms: expected true or false, got 7"),
    ],
)
def test_what_does_not_fit_is_named_with_its_step(text, message):
    with pytest.raises(ConfigError) as raised:
        with_parameters(BOOK, [text])
    assert str(raised.value) == message
