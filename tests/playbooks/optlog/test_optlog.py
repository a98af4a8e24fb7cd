"""The log's file: chain, lock, torn tails, what was changed afterwards, old and new schemas."""

import errno
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from playbooks.optlog import Change, LogEffect, OptLog, Record
from playbooks.optlog.provenance import config_hash, provenance_of
from playbooks.optlog.record import canonical, content_id, digest
from report_schemas import violations
from repository import ROOT
from waiting import CEILING_S


def full(title="Cap 48"):
    return Record(
        title,
        what=(Change("max_batch", 64, 48),),
        why="the knee is at 64",
        how={"seed": 7, "lengths": "chat"},
        effect=(LogEffect("e2e_p99_ms", 812.5, 430.0, 3, -0.5, -0.4, "better"),),
        problems=("one repeat was noisy",),
        decision="adopt",
        rollback="set max_batch 64",
        operator="Ana",
        environment={"torch": "2.13"},
        artifacts=("a.json",),
    )


@pytest.fixture
def log(tmp_path):
    return OptLog(tmp_path / "deep" / "log.jsonl")


def filled(log, count=5):
    return [log.append(full(f"record {i}")) for i in range(count)]


def lines_of(log):
    return log.path.read_bytes().splitlines(keepends=True)


def kinds(log):
    return [damage.kind for damage in log.read().damage]


# --- one writer -----------------------------------------------------------------------------


def test_what_is_appended_is_read_back_whole(log):
    written = filled(log, 3)
    reading = log.read()
    assert reading.records == tuple(written)
    assert reading.damage == ()
    assert reading.intact
    assert [r.prev for r in written] == [None, *reading.hashes[:-1]]
    assert len({r.id for r in written}) == 3


def test_the_hash_is_that_of_the_stored_line_and_of_canonical_json(log):
    filled(log, 2)
    first, second = (json.loads(line) for line in lines_of(log))
    assert canonical(first) + b"\n" == lines_of(log)[0]
    assert second["prev"] == digest(first)
    text = json.dumps(first, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert second["prev"] == hashlib.sha256(text.encode()).hexdigest()


def test_lines_are_as_the_published_schema_says(log):
    log.append(full())
    log.append(Record("bare"))
    log.append(
        Record("texts", effect=(LogEffect("bound_by", "kv", "batch"), LogEffect("on", True)))
    )
    for line in lines_of(log):
        assert violations(json.loads(line), "log_record") == []


def test_values_that_json_has_not_are_written_as_it_has_them(log):
    import numpy as np

    log.append(
        Record(
            "odd \ud800 语言 \u2028 🙂",
            what=(Change("set", {3, 1}, Path("/x")),),
            how={"nan": math.nan, "inf": [math.inf], "number": np.float32(0.5), 3: (1, 2)},
        )
    )
    log.append(Record("after"))
    record = log.read().records[0]
    assert record.title == "odd ? 语言 \u2028 🙂"
    assert record.what[0] == Change("set", [1, 3], "/x")
    assert record.how == {"nan": None, "inf": [None], "number": 0.5, "3": [1, 2]}
    assert log.read().damage == ()


def test_a_log_that_is_not_there_is_empty(log):
    assert log.read().records == ()
    with pytest.raises(ConfigError, match="no records yet"):
        log.read().find("last")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"title": "  "}, "title"),
        ({"title": "x", "decision": "maybe"}, "adopt, reject, hold, rolled_back"),
        ({"title": "x", "claim": "felt"}, "measured, inferred, simulated"),
    ],
)
def test_a_record_that_says_nothing_is_refused(bad, why):
    with pytest.raises(ConfigError, match=why):
        Record(**bad)


def test_a_record_is_found_by_the_beginning_of_its_id(log):
    written = filled(log, 3)
    reading = log.read()
    assert reading.find(written[1].id[:10]) == written[1]
    assert reading.find("last") == reading.find("-1") == written[2]
    assert reading.find("-3") == written[0]
    for unknown in ("zzzz", "", "-4", "-0"):
        with pytest.raises(ConfigError, match="no record has this id"):
            reading.find(unknown)


# --- a chain that shows changes ---------------------------------------------------------------


def test_a_changed_record_is_named(log):
    written = filled(log)
    lines = lines_of(log)
    lines[2] = lines[2].replace(b"430.0", b"230.0")
    log.path.write_bytes(b"".join(lines))
    (damage,) = log.read().damage
    assert (damage.kind, damage.id, damage.line) == ("altered", written[2].id, 3)
    assert written[2].id in damage.text
    assert not log.read().intact


def test_the_last_record_cannot_be_changed_either(log):
    written = filled(log)
    lines = lines_of(log)
    lines[-1] = lines[-1].replace(b'"adopt"', b'"reject"')
    log.path.write_bytes(b"".join(lines))
    assert [(d.kind, d.id) for d in log.read().damage] == [("altered", written[-1].id)]


def test_a_changed_record_with_a_new_id_breaks_the_chain_behind_it(log):
    written = filled(log)
    lines = lines_of(log)
    forged = json.loads(lines[2]) | {"decision": "reject"}
    forged["id"] = content_id(forged)
    lines[2] = canonical(forged) + b"\n"
    log.path.write_bytes(b"".join(lines))
    (damage,) = log.read().damage
    assert (damage.kind, damage.id) == ("chain", written[3].id)
    assert forged["id"] in damage.text


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda lines: lines[1:], 1),
        (lambda lines: lines[:2] + lines[3:], 3),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 1),
    ],
    ids=["first gone", "one gone", "two swapped", "one twice"],
)
def test_records_taken_out_moved_or_doubled_break_the_chain(log, change, named):
    written = filled(log)
    log.path.write_bytes(b"".join(change(lines_of(log))))
    damage = log.read().damage
    assert {d.kind for d in damage} == {"chain"}
    assert damage[0].id == written[named].id


def test_a_key_that_is_there_twice_is_no_record(log):
    filled(log, 2)
    lines = lines_of(log)
    lines[0] = lines[0].replace(b'{"artifacts"', b'{"why":"else","artifacts"')
    log.path.write_bytes(b"".join(lines))
    assert kinds(log) == ["unreadable", "chain"]


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"null", b"[" * 100_000, b'{"schema":1,"title":NaN}', b"\xff\xfe",
     b'{"schema":true}', b'{"schema":1,"what":3}', b'{"schema":1,"what":[3]}',
     b'{"schema":1,"effect":[{"metric":"m","interval":[1]}]}', b'{"schema":1,"why":"\\ud800"}'],
    ids=lambda line: repr(line[:20]),
)  # fmt: skip
def test_a_line_that_is_no_record_is_named_and_passed_over(log, line):
    written = filled(log, 2)
    with log.path.open("ab") as file:
        file.write(line + b"\n")
    after = log.append(full("after"))
    reading = log.read()
    assert reading.records == (*written, after)
    assert [(d.kind, d.line) for d in reading.damage] == [("unreadable", 3)]


# --- torn tails -------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_costs_nothing_that_was_whole(tmp_path):
    """Every length of a torn last line: reported, kept aside, and the next append works."""
    source = OptLog(tmp_path / "source.jsonl")
    filled(source, 2)
    before, last = lines_of(source)
    for cut in range(len(last)):
        log = OptLog(tmp_path / f"{cut}.jsonl")
        log.path.write_bytes(before + last[:cut])
        lost_newline_only = cut == len(last) - 1
        first = log.read()
        assert len(first.records) == (2 if lost_newline_only else 1)
        assert kinds(log) == (["torn"] if 0 < cut < len(last) - 1 else [])
        assert first.intact
        added = log.append(Record("next"))
        reading = log.read()
        assert reading.damage == ()
        assert reading.records == (*first.records, added)
        if 0 < cut < len(last) - 1:
            assert log.torn_path.read_bytes() == last[:cut] + b"\n"
            assert log.notices[0].endswith(f"kept in {cut}.jsonl.torn")
        else:
            assert not log.torn_path.exists()
            assert log.notices == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.binary(max_size=40), st.booleans())
def test_whatever_hangs_at_the_end_the_records_stay(tmp_path_factory, count, garbage, once_more):
    log = OptLog(tmp_path_factory.mktemp("log") / "log.jsonl")
    written = filled(log, count + 1)
    with log.path.open("ab") as file:
        file.write(garbage)
    assert log.read().records == tuple(written)
    added = [log.append(Record("next")) for _ in range(1 + once_more)]
    reading = log.read()
    assert reading.records == (*written, *added)
    assert {d.kind for d in reading.damage} <= {"unreadable"}
    assert set(reading.hashes[:-1]) >= {r.prev for r in added}
    kept = log.torn_path.read_bytes() if log.torn_path.exists() else b""
    head, newline, tail = garbage.rpartition(b"\n")
    assert head + newline in log.path.read_bytes()
    assert tail in log.path.read_bytes() or tail in kept


def test_the_very_first_record_torn(log):
    filled(log, 1)
    whole = lines_of(log)[0]
    log.path.write_bytes(whole[:9])
    log.append(Record("next"))
    assert [r.title for r in log.read().records] == ["next"]
    log.path.write_bytes(b"\0" * 512)  # blocks that were given to the file and never written
    log.append(Record("again"))
    assert [r.title for r in log.read().records] == ["again"]


@pytest.mark.parametrize("text", ["# Notes\nmine\n", "# Notes\nno newline", '{"a": 1}\n', "\n"])
def test_a_file_that_is_no_log_is_left_alone(log, text):
    log.path.parent.mkdir()
    log.path.write_text(text)
    with pytest.raises(ConfigError, match="left alone"):
        log.append(Record("x"))
    assert log.path.read_text() == text


def test_a_write_that_fails_half_way_leaves_the_log_as_it_was(log, monkeypatch):
    written = filled(log, 2)
    real, room = os.write, 300

    def full_disk(fd, data):
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = real(fd, bytes(data)[:room])
        room -= done
        return done

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(ConfigError, match="No space left"):
        log.append(full("lost"))
    assert room == 0
    monkeypatch.undo()
    assert log.read().records == tuple(written)
    assert kinds(log) == []
    log.append(full("next"))


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        OptLog(tmp_path / "file" / "log.jsonl").append(Record("x"))
    with pytest.raises(ConfigError, match="cannot be read"):
        OptLog(tmp_path).read()


# --- many writers -----------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from playbooks.optlog import LogEffect, OptLog, Record
log = OptLog(Path(sys.argv[1]))
for i in range(int(sys.argv[3])):
    effect = LogEffect("m", i, i + 1, 3, 0.1, 0.2, "better")
    log.append(Record(f"{sys.argv[2]} {i}", effect=(effect,)))
"""


def writer(path, name, count, script=WRITER):
    return subprocess.Popen([sys.executable, "-c", script, str(path), name, str(count)], cwd=ROOT)


def test_two_processes_append_a_thousand_records_each(log):
    both = [writer(log.path, name, 1000) for name in "ab"]
    assert [process.wait(CEILING_S) for process in both] == [0, 0]
    reading = log.read()
    assert reading.damage == ()
    assert len(reading.records) == 2000
    for name in "ab":
        mine = [r.title for r in reading.records if r.title.startswith(name)]
        assert mine == [f"{name} {i}" for i in range(1000)]


def test_threads_of_one_process_append_in_turn(log):
    threads = [threading.Thread(target=filled, args=(log, 25)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.read().records) == 100
    assert log.read().damage == ()


HALF_WAY = """
import os, signal, sys
from pathlib import Path
from playbooks.optlog import OptLog, Record
log, real, count = OptLog(Path(sys.argv[1])), os.write, 0
def write(fd, data):
    real(fd, bytes(data)[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
log.append(Record("whole"))
os.write = write
log.append(Record("half"))
"""


def test_killed_in_the_middle_of_an_append(log):
    """SIGKILL with half a line written and the lock held."""
    assert writer(log.path, "x", 0, HALF_WAY).wait(CEILING_S) == -signal.SIGKILL
    assert [r.title for r in log.read().records] == ["whole"]
    assert kinds(log) == ["torn"]
    log.append(Record("next"))
    assert [r.title for r in log.read().records] == ["whole", "next"]
    assert kinds(log) == []
    assert log.torn_path.read_bytes().startswith(b'{"artifacts":[]')


def test_killed_at_any_moment_while_another_process_goes_on(log):
    """The one that lives gets all its records in, whatever the other left behind."""
    lives, dies = writer(log.path, "lives", 150), writer(log.path, "dies", 1_000_000)
    while not log.path.exists() or log.path.stat().st_size < 20_000:
        time.sleep(0.001)
    dies.kill()
    assert dies.wait(CEILING_S) == -signal.SIGKILL
    assert lives.wait(CEILING_S) == 0
    log.append(Record("next"))
    reading = log.read()
    assert reading.damage == ()
    assert sum(r.title.startswith("lives") for r in reading.records) == 150
    assert reading.records[-1].title == "next"


def test_an_append_looks_only_at_the_end_of_the_file(log, monkeypatch):
    filled(log, 300)
    read = 0
    real = os.pread

    def counted(fd, count, at):
        nonlocal read
        read += count
        return real(fd, count, at)

    monkeypatch.setattr(os, "pread", counted)
    log.append(full())
    assert 0 < read <= 65536 * 2 < log.path.stat().st_size * 2
    assert len(log.read().records) == 301


def test_a_writer_that_never_ends_is_named_and_readers_read_on(log, monkeypatch):
    written = filled(log, 1)
    monkeypatch.setattr("playbooks.optlog.store.WRITER_WAIT_S", 0.05)
    monkeypatch.setattr("playbooks.optlog.store.READER_WAIT_S", 0.05)
    with OptLog(log.path)._writing():
        with pytest.raises(ConfigError, match="another process"):
            log.append(Record("x"))
        assert log.read().records == tuple(written)
    log.append(Record("y"))


def test_a_log_that_is_moved_away_while_a_writer_waits_is_begun_anew(log):
    filled(log, 2)
    with OptLog(log.path)._writing():
        waiting = threading.Thread(target=log.append, args=(Record("new"),))
        waiting.start()
        log.path.rename(log.path.with_suffix(".old"))
    waiting.join()
    assert [r.title for r in log.read().records] == ["new"]
    assert len(OptLog(log.path.with_suffix(".old")).read().records) == 2


# --- schemas ----------------------------------------------------------------------------------


def test_an_older_schema_still_reads_and_the_chain_goes_on(log):
    """Fields that came later have their defaults; the hash is of what is stored."""
    old = {"schema": 0, "id": "a1", "time": "2025-09-30T10:00:00Z", "title": "cap 48",
           "what": [{"key": "max_batch", "before": 64, "after": 48}],
           "effect": [{"metric": "p99", "before": 1, "after": 2}], "decision": "accepted",
           "prev": None}  # fmt: skip
    old["id"] = content_id(old)
    log.path.parent.mkdir()
    log.path.write_bytes(canonical(old) + b"\n")
    new = log.append(full())
    reading = log.read()
    assert reading.damage == ()
    assert new.prev == digest(old)
    first = reading.records[0]
    assert first.title == "cap 48"
    assert first.effect == (LogEffect("p99", 1, 2),)
    assert first.problems == ()
    assert reading.find(old["id"]) == first


def test_a_newer_schema_reads_and_keeps_what_is_not_understood(log):
    filled(log, 1)
    stored = json.loads(lines_of(log)[0])
    newer = stored | {"schema": 2, "cost": {"euro": 3}, "decision": "adopt_half",
                      "prev": digest(stored)}  # fmt: skip
    newer["id"] = content_id(newer)
    with log.path.open("ab") as file:
        file.write(canonical(newer) + b"\n")
    reading = log.read()
    assert reading.damage == ()
    assert reading.records[1].to_dict() == newer
    assert log.append(full()).prev == digest(newer)
    assert log.read().damage == ()


@pytest.mark.parametrize("schema", [2, 0, -5, 10**6])
def test_what_a_record_says_of_its_schema_decides_nothing_about_its_check(log, schema):
    written = filled(log)
    lines = lines_of(log)
    altered = json.loads(lines[-1]) | {"decision": "reject", "schema": schema}
    log.path.write_bytes(b"".join([*lines[:-1], canonical(altered) + b"\n"]))
    assert [(d.kind, d.id) for d in log.read().damage] == [("altered", written[-1].id)]


# --- seals ------------------------------------------------------------------------------------

KEY = b"only the operator has it"


def sealed(log, count=3):
    keyed = OptLog(log.path, KEY)
    return keyed, [keyed.append(Record(f"change {i}")) for i in range(count)]


def forged(line, **changes):
    """Changed, with an id that fits: what whoever has the file can do without the key."""
    data = json.loads(line) | changes
    return canonical(data | {"id": content_id(data)}) + b"\n"


def test_with_a_key_the_last_record_cannot_be_forged(log):
    keyed, _ = sealed(log)
    assert keyed.read().damage == ()
    assert (keyed.read().sealed, keyed.read().seals_checked) == (3, True)
    lines = lines_of(log)
    log.path.write_bytes(b"".join([*lines[:-1], forged(lines[-1], decision="adopt")]))
    assert log.read().damage == ()  # without the key the chain alone cannot show it
    (damage,) = keyed.read().damage
    assert damage.kind == "altered"
    assert "EVEWATCH_LOG_KEY" in damage.text
    assert not keyed.read().intact


@pytest.mark.parametrize("extra", [{}, {"title": "nothing happened"}])
def test_a_seal_that_was_taken_off_is_seen(log, extra):
    keyed, _ = sealed(log)
    lines = lines_of(log)
    log.path.write_bytes(b"".join([*lines[:-1], forged(lines[-1], seal=None, **extra)]))
    assert [d.kind for d in keyed.read().damage] == ["unsealed"]
    assert not keyed.read().intact


def test_another_key_is_not_the_key(log):
    sealed(log)
    assert {d.kind for d in OptLog(log.path, b"another").read().damage} == {"altered"}


def test_records_from_before_the_key_are_covered_by_the_first_seal(log, monkeypatch):
    written = filled(log, 2)
    monkeypatch.setenv("EVEWATCH_LOG_KEY", KEY.decode())
    keyed = OptLog(log.path)
    assert [d.kind for d in keyed.read().damage] == ["unsealed"]
    keyed.append(Record("from here on with a key"))
    assert keyed.read().damage == ()
    lines = lines_of(log)
    log.path.write_bytes(b"".join([forged(lines[0], decision="reject"), *lines[1:]]))
    assert [(d.kind, d.id) for d in keyed.read().damage] == [("chain", written[1].id)]


# --- provenance -------------------------------------------------------------------------------


def test_provenance_names_versions_and_settings():
    from engine.config import EngineConfig

    found = provenance_of(EngineConfig())
    assert found["python"].startswith("3.")
    assert found["model"] == "embedded"
    assert found["config_hash"] == config_hash(EngineConfig().to_dict())
    assert found["config_hash"] != provenance_of(EngineConfig(max_batch=47))["config_hash"]
    assert provenance_of().keys() == found.keys() - {"model", "device", "config_hash"}
