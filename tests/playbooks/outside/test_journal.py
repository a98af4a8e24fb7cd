"""What the requests of a check show, by the address that they went to."""

from array import array

from playbooks.load.record import RequestRecord
from playbooks.outside.journal import Journal

MS = 1_000_000


def answered(number, wait_ms):
    sent = number * 100 * MS
    first = sent + wait_ms * MS
    return RequestRecord(
        number, sent, 4, 2, sent=sent, events=array("q", [first, first + MS]), ended=first + MS,
        prompt_tokens=4, output_tokens=2, finish_reason="length",
    )  # fmt: skip


def cut(number):
    return RequestRecord(number, 0, 4, 2, error="dropped", detail="it ended")


def test_phases_may_be_filled_at_the_same_time_and_facts_name_the_address():
    journal = Journal()
    good, bad = journal.begin("http://a"), journal.begin("http://b")
    for number in range(30):
        good.records.append(answered(number, 10))
        bad.records.append(answered(number, 3000 if number % 10 == 9 else 10))
    bad.records.append(cut(30))
    facts = journal.facts()
    assert (facts["tail"].at, facts["tail"].slow) == ("http://b", 3)
    assert (facts["broken"].requests, facts["broken"].streams) == (61, 1)
    assert facts["broken"].how == ("http://b: 1 × dropped: it ended",)


def test_one_address_is_not_named():
    journal = Journal()
    phase = journal.begin("http://a")
    phase.records += [cut(0), *(answered(number, 10) for number in range(12))]
    journal.begin("http://b")  # nothing was sent there
    facts = journal.facts()
    assert facts["tail"].at == ""
    assert facts["broken"].how == ("1 × dropped: it ended",)
    assert Journal().facts() == {"broken": None, "tail": None}
