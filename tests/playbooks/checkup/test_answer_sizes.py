"""Lengths that were not asked for, and answers that come in one piece."""

from array import array
from dataclasses import replace

import pytest

from playbooks.checkup.answer_sizes import at_once_share, wrong_lengths
from playbooks.load.record import RequestRecord

MS = 1_000_000
WHOLE = RequestRecord(
    0, 0, 40, 8, events=array("q", [(100 + 20 * i) * MS for i in range(8)]), ended=250 * MS,
    prompt_tokens=41, output_tokens=8, finish_reason="length",
)  # fmt: skip


def some(odd: RequestRecord, count: int = 3) -> list[RequestRecord]:
    return [WHOLE] * 10 + [odd] * count


def test_sound_answers_have_their_lengths():
    early = replace(WHOLE, events=WHOLE.events[:3], output_tokens=3, finish_reason="stop")
    uncounted = replace(early, usage=False, prompt_usage=False, prompt_tokens=40)
    cached = replace(WHOLE, prompt_tokens=9, cached_tokens=32)
    failed = replace(WHOLE, error="http_503", events=array("q"), output_tokens=0)
    assert wrong_lengths([*some(early), uncounted, uncounted, cached, cached, failed]) == ()
    assert wrong_lengths([failed]) is None


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (replace(WHOLE, output_tokens=24), "longer than they may be: 24 tokens, 8 asked for"),
        (replace(WHOLE, output_tokens=3, events=WHOLE.events[:3]), "by length before they were"),
        (replace(WHOLE, output_tokens=1), "1 by its usage, 8 pieces came"),
        (replace(WHOLE, prompt_tokens=12), "12 tokens by its usage, about 40 sent"),
    ],
)
def test_other_lengths_are_told_in_words(odd, text):
    (line,) = wrong_lengths(some(odd)) or ()
    assert line.startswith("3 of 13 ") and text in line
    assert wrong_lengths(some(odd, 1)) == ()  # one may be chance


def test_answers_in_one_piece():
    last = WHOLE.last
    whole = replace(WHOLE, events=array("q", [last - 7 + i for i in range(8)]))
    assert at_once_share([WHOLE] * 6) == 0.0
    assert at_once_share([WHOLE] * 2 + [whole] * 6) == 0.75
    queued = replace(WHOLE, events=array("q", [5000 * MS + i * MS for i in range(8)]))
    assert at_once_share([queued] * 8) == 0.0
    quick = replace(WHOLE, events=array("q", [10 * MS] * 8))
    assert at_once_share([quick] * 20) is None  # nothing has a course in 10 ms
