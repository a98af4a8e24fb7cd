"""What the requests of a check show, by the address that they went to."""

from array import array
from dataclasses import replace

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
    assert set(Journal().facts().values()) == {None}


def test_a_burst_of_refusals_counts_whichever_step_met_it():
    journal = Journal()
    journal.begin("http://a").records += [answered(number, 10) for number in range(36)]
    soak = journal.begin("http://a")
    soak.records += [answered(number, 10) for number in range(100)]
    soak.records += [RequestRecord(n, 0, 4, 2, error="http_429") for n in range(4)]
    assert journal.facts()["refused_share"] == 4 / 140


def test_lengths_name_the_address_and_are_of_all_phases():
    journal = Journal()
    for _ in range(2):
        journal.begin("http://a").records.append(replace(answered(0, 10), output_tokens=9))
        journal.begin("http://b").records.append(answered(0, 10))
    (line,) = journal.facts()["lengths"]
    assert line.startswith("http://a: 2 of 2 answers were longer than they may be: 9 tokens, 2 ")


def test_pauses_of_several_phases_are_one_finding():
    journal = Journal()
    for _ in range(3):
        phase = journal.begin("http://a")
        phase.records += [answered(number, 10) for number in range(12)]
        phase.records.append(answered(13, 500))
    tail = journal.facts()["tail"]
    assert (tail.pauses, tail.slow) == (3, 3)
    for phase in journal.phases:
        phase.late.append((1320 * MS, 1700 * MS))  # this machine slept
    assert journal.facts()["tail"].slow == 0
