import threading

import pytest

from engine.request import FinishReason, TokenLogprobs
from engine.stream import Stream
from waiting import CEILING_S


def test_tokens_not_taken_merge_into_one_event():
    stream = Stream("r")
    stream.put("a", [1])
    stream.put("b", [2])
    event = stream.poll()
    assert (event.text, event.token_ids, event.finish_reason) == ("ab", (1, 2), None)
    assert stream.poll() is None


def test_iteration_ends_with_the_reason():
    stream = Stream("r")
    stream.put("a", [1])
    stream.close(FinishReason.LENGTH, "z")
    (event,) = list(stream)
    assert (event.text, event.finish_reason) == ("az", FinishReason.LENGTH)
    assert stream.finished


def test_closing_is_final():
    stream = Stream("r")
    stream.close(FinishReason.CANCELLED)
    stream.put("late", [9])
    stream.close(FinishReason.STOP)
    event = stream.result()
    assert (event.text, event.finish_reason) == ("", FinishReason.CANCELLED)


def test_result_waits_for_the_end_from_another_thread():
    stream = Stream("r")
    writer = threading.Thread(
        target=lambda: (stream.put("a", [1]), stream.close(FinishReason.STOP))
    )
    writer.start()
    assert stream.result(CEILING_S).text == "a"
    writer.join()


def test_result_times_out_and_loses_nothing():
    stream = Stream("r")
    stream.put("a", [1])
    with pytest.raises(TimeoutError, match="r: not finished"):
        stream.result(0.01)
    stream.close(FinishReason.STOP)
    assert stream.result(CEILING_S).text == "a"


def test_the_reader_is_told():
    calls = []
    stream = Stream("r", lambda: calls.append(1))
    stream.put("a", [1])
    stream.close(FinishReason.STOP)
    assert len(calls) == 2


def test_log_probabilities_come_with_their_tokens():
    stream = Stream("r")
    notes = [TokenLogprobs(i, -float(i), ()) for i in range(4)]
    for i in (0, 1):
        stream.note(notes[i])
        stream.put("x", [i])
    stream.note(notes[2])  # its token comes later
    assert stream.poll().logprobs == tuple(notes[:2])
    stream.put("x", [2])
    stream.note(notes[3])
    stream.close(FinishReason.STOP, token_ids=[3])
    assert stream.poll().logprobs == tuple(notes[2:])


def test_who_listens_for_the_end_hears_of_no_token():
    tokens, ends = [], []
    stream = Stream("r")
    stream.listen(None, lambda: ends.append(1))
    stream.put("a", [1])
    assert not ends
    stream.close(FinishReason.STOP)
    assert len(ends) == 1
    late = Stream("r")
    late.put("a", [1])
    late.listen(lambda: tokens.append(1), lambda: ends.append(1))
    assert (len(tokens), len(ends)) == (1, 1)
    late.close(FinishReason.STOP)
    assert (len(tokens), len(ends)) == (1, 2)
    late.listen(lambda: tokens.append(1), lambda: ends.append(1))
    assert (len(tokens), len(ends)) == (1, 3)
