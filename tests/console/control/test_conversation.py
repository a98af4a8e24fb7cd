from console.control.conversation import Conversation
from console.renderables.conversation import conversation
from console.renderables.lines import plain
from console.renderables.wrapping import wrap
from engine.errors import RequestError
from engine.request import FinishReason
from engine.stream import Stream


class Engine:
    """Keeps what was asked; the test drives the streams."""

    def __init__(self, refuse=None):
        self.asked = []
        self.streams = []
        self.refuse = refuse

    def submit(self, messages, params):
        self.asked.append(messages)
        if self.refuse:
            raise RequestError(self.refuse)
        self.streams.append(Stream(f"r-{len(self.streams) + 1}"))
        return self.streams[-1]


def talk_with(engine, text="hello"):
    times = iter(range(100))
    talk = Conversation(clock=lambda: float(next(times)))
    talk.ask(text, engine.submit)
    return talk


def test_an_answer_streams_in_and_is_accounted_for():
    engine = Engine()
    talk = talk_with(engine)
    assert talk.request_id == "r-1"
    assert not talk.take()
    engine.streams[0].put("Good", [1])
    assert talk.take()
    assert talk.turns[-1].text == "Good"
    engine.streams[0].put(" night", [2])
    engine.streams[0].close(FinishReason.STOP)
    talk.take()
    assert talk.request_id is None
    assert talk.turns[-1].text == "Good night"
    assert talk.turns[-1].note == "stop · 2 tok · first after 1.0 s · 1.0 tok/s"


def test_the_next_question_carries_the_conversation():
    engine = Engine()
    talk = talk_with(engine)
    engine.streams[0].put("hi", [1])
    engine.streams[0].close(FinishReason.STOP)
    talk.take()
    talk.ask("and now?", engine.submit)
    assert [m["role"] for m in engine.asked[1]] == ["user", "assistant", "user"]
    assert engine.asked[1][-1] == {"role": "user", "content": "and now?"}


def test_a_refusal_is_shown_and_forgotten():
    engine = Engine(refuse="prompt: 9000 tokens are more than 8192")
    talk = talk_with(engine)
    assert talk.request_id is None
    assert talk.turns[-1].note == "refused: prompt: 9000 tokens are more than 8192"
    engine.refuse = None
    talk.ask("shorter", engine.submit)
    assert engine.asked[1] == [{"role": "user", "content": "shorter"}]


def test_an_answer_that_never_came_is_not_sent_again():
    engine = Engine()
    talk = talk_with(engine)
    engine.streams[0].close(FinishReason.ERROR, error="out of pages")
    talk.take()
    assert talk.turns[-1].note == "error: out of pages · 0 tok"
    talk.ask("again", engine.submit)
    assert len(engine.asked[1]) == 1


def test_wrapping_by_cells():
    assert wrap("a bb ccc", 4) == ("a bb", "ccc")
    assert wrap("abcdefgh", 3) == ("abc", "def", "gh")
    assert wrap("模型模型", 5) == ("模型", "模型")
    assert wrap("one\n\ntwo", 10) == ("one", "", "two")


def test_lines_show_who_speaks_and_that_more_comes():
    engine = Engine()
    talk = talk_with(engine, "hello there")
    engine.streams[0].put("a fine night", [1])
    talk.take()
    lines = [plain(line) for line in conversation(talk.turns, True, 10)]
    assert lines == ["› hello", "  there", "  a fine", "  night", "  … answering"]
