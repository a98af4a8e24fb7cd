"""Causes that any client sees: counters that lie, streams that break, tails, the unusual."""

from __future__ import annotations

import statistics

from playbooks.diagnosis.evidence import Evidence
from playbooks.diagnosis.findings import RESTART, Finding, confidence
from playbooks.diagnosis.seen import Deviation, Tail

SHOWN = 4
FAILING = 0.01
"""Of the requests: more are no chance."""
REPEATS, EMPTIED = 0.5, 2
"""Of the greedy answers: fewer that come again are no rounding, they are drawn. So many that are
empty, and at another time were not, are no chance."""
AT_ONCE = 0.5
"""Of the streamed answers: more that come in one piece are no chance."""


def restarted_while_watched(e: Evidence) -> Finding | None:
    assert e.restarts is not None
    if not e.restarts.count:
        return None
    count, seconds = e.restarts.count, e.restarts.watched_s
    return Finding(
        "restarted_while_watched",
        confidence(count, 1, 3),
        (f"its counters began again {count} × in {seconds:.0f} s",),
        "read the end of its log before the last start: out of memory, a failed health probe, a "
        "crash; nothing else that was measured here holds until it stays up",
        RESTART,
        "its log and its start time say that it ran through: then the page is of several processes",
    )


def target_inconsistent(e: Evidence) -> Finding | None:
    if not e.inconsistent:
        return None
    return Finding(
        "target_inconsistent",
        confidence(len(e.inconsistent), 1, 3),
        e.inconsistent[:SHOWN],
        "do not trust its metrics page: see that it is of this server and of all its processes "
        "(several workers, several replicas behind one address)",
        None,
        "the page of one single process says what its clients got",
    )


def broken_streams(e: Evidence) -> Finding | None:
    assert e.broken is not None
    if not e.broken.streams:
        return None
    streams, requests = e.broken.streams, e.broken.requests
    return Finding(
        "broken_streams",
        confidence(streams, 1, 3),
        (f"{streams} of {requests} answers ended before they were finished", *e.broken.how[:SHOWN]),
        "look for time limits and restarts between client and engine (proxy, load balancer), and "
        "for the engine's log at that moment; clients must ask again",
        None,
        "the same requests sent to the engine itself, without what lies between, are whole",
    )


def wrong_lengths(e: Evidence) -> Finding | None:
    if not e.lengths:
        return None
    return Finding(
        "wrong_lengths",
        confidence(len(e.lengths), 1, 3),
        e.lengths[:SHOWN],
        "look for what changes requests or answers on their way: limits of a gateway, a prompt "
        "that is cut in silence, a default that wins over max_tokens, usage that is made up",
        None,
        "the same requests sent to the engine itself have the lengths that were asked for",
    )


def unstable_answers(e: Evidence) -> Finding | None:
    """Of requests alone: that answers depend on the batch is how many engines are."""
    assert e.repeats is not None
    drawn, emptied = e.repeats < REPEATS, e.emptied or 0
    if not drawn and emptied < EMPTIED:
        return None
    texts = [f"{e.repeats:.0%} of the greedy answers came again word for word, one request at a "
             f"time (limit {REPEATS:.0%})"] if drawn else []  # fmt: skip
    if emptied >= EMPTIED:
        texts.append(f"{emptied} answers had no text, to requests that had one at another time")
    return Finding(
        "unstable_answers",
        confidence(e.repeats, REPEATS, 0.0) if drawn else confidence(emptied, EMPTIED, 6),
        tuple(texts),
        "see that temperature 0 reaches the engine (defaults of a gateway or of the model's "
        "generation_config), that one model, in one version, answers at this address, and what its "
        "log says of answers without text",
        RESTART,
        "the engine itself, asked the same twice with temperature 0, answers otherwise too",
    )  # fmt: skip


def held_back(e: Evidence) -> Finding | None:
    assert e.at_once_share is not None
    if e.at_once_share < AT_ONCE:
        return None
    return Finding(
        "held_back",
        confidence(e.at_once_share, AT_ONCE, 1.0),
        (f"{e.at_once_share:.0%} of the streamed answers came in one piece at their end",),
        "switch off buffering and compression of text/event-stream in what lies between client and "
        "engine (nginx: proxy_buffering off); every time to the first token here is the answer's",
        None,
        "the same requests sent to the engine itself come in one piece as well",
    )


def failing_requests(e: Evidence) -> Finding | None:
    """Refusals, errors and time limits; streams that broke are a cause of their own."""
    assert e.refused_share is not None
    share = e.refused_share
    if share < FAILING:
        return None
    return Finding(
        "failing_requests",
        confidence(share, FAILING, 0.1),
        (f"{share:.1%} of the requests were refused or answered with an error (limit "
         f"{FAILING:.0%})",),
        "read its answers (`errors` in the load's report): 429 and 503 are its own limits of what "
        "may wait, raise them or send less; others are in its log",
        RESTART,
        "the same requests, a few at a time, fail as often",
    )  # fmt: skip


def stalls(e: Evidence) -> Finding | None:
    assert e.tail is not None
    tail = e.tail
    if not tail.slow:
        return None
    return Finding(
        "stalls",
        confidence(tail.slow, 1, 4),
        (_stood_still(tail) if tail.pauses else _waited(tail),),
        "look for what comes so often: a health probe, a log or metrics flush, garbage "
        "collection, a retry in a proxy, one bad worker among several",
        None,
        "the same load sent past the proxy has no such tail",
    )  # fmt: skip


def _waited(tail: Tail) -> str:
    return (f"{tail.slow} of {tail.requests} requests{_to(tail)} waited {tail.slow_ms / 1e3:.1f} s "
            f"longer for {tail.where} than others at the same load ({tail.typical_ms:.0f} ms): "
            f"{_rhythm(tail)}")  # fmt: skip


def _stood_still(tail: Tail) -> str:
    return (f"{tail.pauses} × nobody got a token for {tail.slow_ms / 1e3:.1f} s while requests "
            f"were open{_to(tail)}, {tail.stood_share:.0%} of that time; {tail.slow} of "
            f"{tail.requests} requests were held (usual between two tokens: at most "
            f"{tail.typical_ms:.0f} ms)")  # fmt: skip


def _to(tail: Tail) -> str:
    return f" to {tail.at}" if tail.at else ""


def _rhythm(tail: Tail) -> str:
    if tail.every is not None:
        return f"every {tail.every}th request"
    if tail.every_s is not None:
        return f"every {tail.every_s:.0f} s"
    return f"{tail.share:.0%} of the requests"


def replica_differs(e: Evidence) -> Finding | None:
    if not e.odd_replicas:
        return None
    return Finding(
        "replica_differs",
        confidence(len(e.odd_replicas), 1, 3),
        e.odd_replicas[:SHOWN],
        "take it out of the rotation, compare its settings, version and machine with a good one",
        RESTART,
        "the others, given its share of the requests, are as slow",
    )


def slower_than_usual(e: Evidence) -> Finding | None:
    assert e.usual is not None
    return _unusual("slower_than_usual", e.usual.slower, e)


def worse_than_usual(e: Evidence) -> Finding | None:
    assert e.usual is not None
    return _unusual("worse_than_usual", e.usual.worse, e)


def _unusual(cause: str, figures: tuple[Deviation, ...], e: Evidence) -> Finding | None:
    if not figures or e.usual is None:
        return None
    worse, limit = statistics.median(one.worse for one in figures), e.usual.limit
    runs = "the last healthy run" if e.usual.runs == 1 else f"the last {e.usual.runs} healthy runs"
    since = "; ".join(e.usual.changed) or "nothing that is recorded here: look at the machine"
    return Finding(
        cause,
        confidence(worse, limit, 2 * limit),
        (f"{worse:.0%} worse than {runs} (limit {limit:.0%}): {'; '.join(map(str, figures))}",
         f"changed since: {since}"),
        "undo what changed since, or make today the usual with `check --accept`",
        None,
        "the same check on the same machine, repeated, is as good as before",
    )  # fmt: skip
