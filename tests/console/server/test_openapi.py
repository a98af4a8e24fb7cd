"""The published document against the server: schemathesis sends what it describes, and what it
excludes, and checks every answer. Bounded, and the same every time."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from console.server.openapi import document
from served import serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    allow_header_conformance,
    unsupported_method,
]
"""Not positive_data_acceptance: no schema can say how long a prompt may be in tokens."""
OPERATIONS = [
    (method.upper(), path)
    for path, item in document("0", False)["paths"].items()
    for method in item
    if method in ("get", "post")
]


@pytest.fixture(scope="module")
def short():
    """A context of 24 tokens, so that what is not limited ends soon."""
    with serving(kernels="cpu", max_positions=24) as served:
        yield served


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_as_published(short, method, path, mode):
    if mode is GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("nothing to get wrong")
    schema = schemathesis.openapi.from_url(short.url + "/openapi.json")

    @settings(
        max_examples=20 if method == "POST" else 3,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def ask(case):
        case.call_and_validate(checks=CHECKS)

    ask()
    short.until_idle()
    assert short.post(prompt="a", max_tokens=2).status_code == 200
