"""Stop strings and held-back text (K33)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.output import OutputText


class Pieces:
    """Each id is a piece of text."""

    def __init__(self, pieces):
        self.pieces = pieces

    def push(self, ids):
        return "".join(self.pieces[i] for i in ids)

    def flush(self):
        return ""


def stream(pieces, stop):
    """What the reader sees, piece by piece, and whether a stop string ended it."""
    out = OutputText(Pieces(pieces), stop)
    shown = []
    for i in range(len(pieces)):
        shown.append(out.push([i]))
        if out.stopped:
            break
    shown.append(out.finish())
    return shown, out.stopped


@pytest.mark.parametrize(
    ("pieces", "text", "stopped"),
    [
        (["a", "E", "N", "D", "b"], "a", True),
        (["a", "EN", "Dxyz"], "a", True),
        (["a", "EN", "X"], "aENX", False),
        (["aE", "N"], "aEN", False),
        (["END"], "", True),
        (["EEN", "D"], "E", True),
        (["xENENDy"], "xEN", True),
    ],
)
def test_k33_nothing_of_the_stop_string_leaks(pieces, text, stopped):
    shown, ended = stream(pieces, ("END",))
    assert ("".join(shown), ended) == (text, stopped)


def test_the_earliest_of_several_wins():
    assert "".join(stream(["abcdef"], ("ef", "cd"))[0]) == "ab"


def test_text_flows_without_stop_strings():
    assert stream(["a", "b"], ())[0] == ["a", "b", ""]


@given(
    st.lists(st.text("abE", max_size=4), max_size=12),
    st.lists(st.text("abE", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_streamed_equals_whole(pieces, stop):
    whole = "".join(pieces)
    shown, stopped = stream(pieces, tuple(stop))
    found = [whole.find(s) for s in stop if s in whole]
    text = "".join(shown)
    if not found:
        assert (text, stopped) == (whole, False)
    else:
        assert stopped
        assert whole.startswith(text)
        assert not any(s in text for s in stop)


@given(
    st.text("abE", max_size=30),
    st.lists(st.text("abE", min_size=1, max_size=4), min_size=1, max_size=3),
    st.data(),
)
def test_how_the_text_is_split_does_not_matter_for_one_stop_string(whole, stop, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    once = "".join(stream([whole], (stop[0],))[0])
    assert "".join(stream(pieces, (stop[0],))[0]) == once


@given(
    st.lists(st.text("abE", max_size=4), max_size=12),
    st.lists(st.text("abE", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_with_the_stop_string_it_is_the_end_of_the_text(pieces, stop):
    out = OutputText(Pieces(pieces), tuple(stop), include_stop=True)
    text = ""
    for i in range(len(pieces)):
        text += out.push([i])
        if out.stopped:
            break
    text += out.finish()
    whole = "".join(pieces)
    if not out.stopped:
        assert text == whole
    else:
        assert whole.startswith(text) and any(text.endswith(s) for s in stop)
        without, _ = stream(pieces, tuple(stop))
        assert text.startswith("".join(without)) and text != "".join(without)


def test_what_comes_too_early_is_no_end():
    """As vLLM's min_tokens: nothing of the first tokens' text is searched."""
    out = OutputText(Pieces(["END", "E", "ND", "END", "x"]), ("END",), unsearched=2)
    assert [out.push([i]) for i in range(4)] == ["END", "E", "ND", ""] and out.stopped
