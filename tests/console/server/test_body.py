"""The request parser under every kind of bad input: an ApiError, and nothing else, ever."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.server.errors import ApiError
from console.server.jsonbody import DEPTH_MOST, parse
from console.server.schema import ChatRequest, CompletionRequest, read


def refused(body):
    with pytest.raises(ApiError) as caught:
        parse(body)
    assert caught.value.status == 400
    assert json.loads(caught.value.encode())["error"]["code"] == "invalid_json"
    return caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"", b"nul", b"[1]", b'"text"', b"1", b"{", b'{"a":}', b'{"a":1}x', b"{'a':1}",
        b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":1e999}', b'{"a":-1e400}',
        b'{"a":1,"a":2}', b'{"b":{"a":1,"a":1}}', b'{"a":"\x00"}', b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}", '{"a":1}'.encode("utf-16"), b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"[" * 1_000_000, b'{"a":' + b"[" * 500_000,
        b'{"a":"\n"}', b'{"a":1,}', b'{"a":01}', b'{"a":.5}', b"\0" * 100,
    ],
)  # fmt: skip
def test_what_is_no_plain_json_object_is_refused(body):
    assert refused(body)


def test_depth_has_a_limit():
    assert parse(_nested(DEPTH_MOST - 1))
    assert "deep" in refused(_nested(DEPTH_MOST + 1))


def _nested(depth):
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_are_an_object_or_an_error(body):
    try:
        assert isinstance(parse(body), dict)
    except ApiError as error:
        assert error.status == 400


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.dictionaries(st.text(), values))
def test_what_is_valid_comes_through_unchanged(data):
    assert parse(json.dumps(data).encode()) == data


def fields(kind):
    """Objects that look like requests: known fields, with values of any kind in them."""
    names = st.sampled_from(sorted(kind.model_fields))
    odd = st.sampled_from(
        [-1, 0, 1.5, "10", 10**30, -(10**30), True, "", "\0", "\ud800", [], {}, [[]], [None],
         [{"role": "user"}], [{"role": "user", "content": "\udfff"}], ["a", 1], [[1], ["a"]],
         {"include_usage": 1}, math.pi, 5e-324, [True], [2**31]]
    )  # fmt: skip
    good = {"prompt": "the", "messages": [{"role": "user", "content": "the"}]}
    base = {name: value for name, value in good.items() if name in kind.model_fields}
    return st.dictionaries(names, odd | values, max_size=5).map(lambda extra: base | extra)


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest])
@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_values_are_a_request_or_an_error_that_names_a_field(kind, data):
    given_fields = data.draw(fields(kind))
    try:
        asked = read(kind, given_fields)
    except ApiError as error:
        assert error.status == 400
        assert error.param
        error.encode().decode()  # even when the client's own text is in it
        return
    assert asked.choices_each >= 1
    assert asked.longest is None or asked.longest >= 1
    assert asked.prompts()


def test_bad_lists_are_left_at_their_first_bad_item():
    """A million complaints about one request would be an attack of their own."""
    many = [True] * 200_000
    for name in ("stop", "stop_token_ids", "prompt"):
        with pytest.raises(ApiError, match=name) as caught:
            read(CompletionRequest, {"prompt": "a", name: many})
        assert len(caught.value.message) < 300
