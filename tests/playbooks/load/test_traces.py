"""Trace files: every format, everything that is wrong with them, and memory that stays small."""

import json
import tracemalloc

import pytest

from engine.errors import ConfigError
from playbooks.load import lines, traces
from playbooks.load.traces import Trace, TraceRow

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2024-05-10 00:00:00.009930+00:00,91,16
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,API log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 27482, "input_length": 7322, "output_length": 490, "hash_ids": [0, 2]}
"""
RECORDING = """{"schema": 1, "id": 1, "scheduled_s": 0.5, "prompt_tokens": 7, "output_tokens": 3}
{"schema": 1, "id": 0, "scheduled_s": 0.25, "prompt_tokens": 9, "output_tokens": 2}
"""


@pytest.fixture
def write(tmp_path):
    def write(data, name="trace"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def rows(path, **options):
    return list(Trace(path, **options).rows())


def test_azure(write):
    first, second, third = rows(write(AZURE))
    assert (first.prompt, first.output) == (374, 44)
    assert second.at_s - first.at_s == pytest.approx(4.314579, abs=1e-6)
    assert (third.prompt, third.output) == (91, 16)


def test_burstgpt_leaves_out_failed_requests_and_counts_them(write):
    trace = Trace(write(BURST))
    assert list(trace.rows()) == [TraceRow(5, 472, 18), TraceRow(45.5, 1087, 230)]
    assert (trace.format, trace.report.failed, trace.report.malformed) == ("burstgpt", 1, 0)


TWO = [(7, 3), (9, 2)]
VARIANTS = {
    "zones": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10T02:00:00+02:00,7,3\n2024-05-10 00:00:02.5 UTC,9,2\n",
    "other columns, another order": "id,GeneratedTokens,TIMESTAMP,ContextTokens\n"
    "a,3,2024-05-10 00:00:00Z,7\nb,2,2024-05-10 00:00:02.5Z,9\n",
    "semicolons": "Timestamp;Request tokens;Response tokens\n0;7;3\n2.5;9;2\n",
    "tabs": "arrived_at\tnum_prefill_tokens\tnum_decode_tokens\n0\t7\t3\n2.5\t9\t2\n",
    "names of others": "arrival_time,input_tokens,output_tokens\n0,7,3\n2.5,9,2\n",
    "BurstGPT with sessions": "Timestamp,Session ID,Elapsed time,Model,Request tokens,"
    "Response tokens,Total tokens,Log Type\n0,a,1,x,7,3,10,y\n2.5,b,1,x,9,2,11,y\n",
    "dates where numbers are usual": "Timestamp,Request tokens,Response tokens\n"
    "2024-05-10 00:00:00,7,3\n2024-05-10 00:00:02.500,9,2\n",
    "an array": '[{"timestamp": 0, "input_length": 7, "output_length": 3},\n'
    '{"timestamp": 2500, "input_length": 9, "output_length": 2}]',
    "dates in JSON": '{"timestamp": "2024-05-10T00:00:00Z", "input_length": 7, "output_length": 3}'
    '\n{"timestamp": "2024-05-10T00:00:02.5Z", "input_length": 9, "output_length": 2}\n',
    "a first line of a megabyte": json.dumps(
        {"timestamp": 0, "hash_ids": list(range(150_000)), "input_length": 7, "output_length": 3}
    )
    + '\n{"timestamp": 2500, "input_length": 9, "output_length": 2}\n',
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_the_formats_are_the_same_traffic(write, name):
    first, second = rows(write(VARIANTS[name]))
    assert [first[1:3], second[1:3]] == TWO
    assert second.at_s - first.at_s == 2.5


@pytest.mark.parametrize("key", ["conversations", "messages", "items"])
@pytest.mark.parametrize("names", [("from", "value"), ("role", "content")])
def test_turns_of_a_conversation_under_other_names(write, key, names):
    who, what = names
    turns = [{who: "system", what: "be brief"}, {who: "user", what: "a b c d e f g"},
             {who: "assistant", what: "h i"}]  # fmt: skip
    (row,) = rows(write(json.dumps({key: turns})), count_tokens=lambda text: len(text.split()))
    assert row == TraceRow(None, 7, 2)


def test_mooncake_times_are_milliseconds(write):
    assert rows(write(MOONCAKE)) == [
        TraceRow(0, 6758, 500, (0, 1)),
        TraceRow(27.482, 7322, 490, (0, 2)),
    ]


@pytest.mark.parametrize(
    ("more", "tokens"), [('"chat_id": 1, "parent_chat_id": -1', 16), ('"type": "text"', 512)]
)
def test_blocks_have_the_size_that_their_format_has(write, more, tokens):
    row = '"timestamp": 1, "input_length": 40, "output_length": 2, "hash_ids": [5, 9, 7]'
    trace = Trace(write(f"{{{more}, {row}}}\n"))
    assert trace.block_tokens == tokens
    assert next(trace.rows()).blocks == (5, 9, 7)
    with pytest.raises(ConfigError, match="hash_ids is no list"):
        Trace(write(f"{{{more}, {row}}}\n".replace("[5, 9, 7]", "[5, null]")))


def test_a_recording_comes_in_order_of_time(write):
    assert rows(write(RECORDING)) == [TraceRow(0.25, 9, 2), TraceRow(0.5, 7, 3)]


SHAREGPT = [
    {"id": "a", "conversations": [{"from": "human", "value": "x" * 40},
                                  {"from": "gpt", "value": "y" * 9}]},
    {"id": "b", "conversations": [{"from": "gpt", "value": "hello"},
                                  {"from": "human", "value": "three more words"},
                                  {"from": "gpt", "value": "ok"}]},
    {"id": "c", "conversations": [{"from": "human", "value": "nobody answers"}]},
]  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
def test_sharegpt_is_measured_with_the_given_tokenizer(write, indent):
    path = write(json.dumps(SHAREGPT, indent=indent))
    assert rows(path) == [TraceRow(None, 10, 3), TraceRow(None, 4, 1)]
    assert rows(path, count_tokens=lambda text: len(text.split())) == [
        TraceRow(None, 1, 1),
        TraceRow(None, 3, 1),
    ]
    assert Trace(path).report.failed == 0  # of a look at the first row
    assert not Trace(path).has_times


def test_sharegpt_as_json_lines(write):
    assert len(rows(write("\n".join(map(json.dumps, SHAREGPT))))) == 2


@pytest.mark.parametrize("text", [AZURE, BURST, MOONCAKE, RECORDING, json.dumps(SHAREGPT)])
def test_byte_order_marks_crlf_and_blank_lines_change_nothing(write, text):
    plain = rows(write(text))
    assert rows(write(b"\xef\xbb\xbf" + text.encode(), "bom")) == plain
    assert rows(write(text.replace("\n", "\r\n"), "crlf")) == plain
    assert rows(write(text.replace("\n", "\n\n") + "\n", "blank")) == plain


# --- order ---------------------------------------------------------------------------------


def burst(times):
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    return head + "".join(f"{at},M,{i + 1},5,0,x\n" for i, at in enumerate(times))


def test_rows_out_of_order_are_sorted_and_counted(write):
    trace = Trace(write(burst([0, 3, 1, 2, 9, 4])))
    assert [row.at_s for row in trace.rows()] == [0, 1, 2, 3, 4, 9]
    assert (trace.report.out_of_order, trace.report.malformed) == (3, 0)


def test_rows_of_the_same_time_keep_the_files_order(write):
    trace = Trace(write(burst([1, 1, 2, 2, 2])))
    assert [row.prompt for row in trace.rows()] == [1, 2, 3, 4, 5]
    assert trace.report.same_time == 3


def test_a_row_too_late_to_be_sorted_is_left_out_and_counted(write, monkeypatch):
    monkeypatch.setattr(traces, "REORDER", 2)
    trace = Trace(write(burst([1, 2, 3, 4, 5, 0.5, 6])))
    assert [row.at_s for row in trace.rows()] == [1, 2, 3, 4, 5, 6]
    assert (trace.report.malformed, trace.report.used) == (1, 6)
    assert "out of order" in trace.report.first_problem


# --- what is wrong with files --------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        "7,M,-3,5,2,x",
        "7,M,0,5,5,x",
        "7,M,3,-5,2,x",
        "7,M,3.5,5,8,x",
        "7,M,many,5,8,x",
        "7,M,nan,5,8,x",
        "7,M,99999999,5,8,x",
        "soon,M,3,5,8,x",
        "inf,M,3,5,8,x",
        "nan,M,3,5,8,x",
        "7,M",
        ",,,,,",
    ],
)
def test_a_malformed_row_is_left_out_and_counted(write, row):
    trace = Trace(write(burst([1, 2]) + row + "\n8,M,3,5,8,x\n"))
    assert [r.at_s for r in trace.rows()] == [1, 2, 8]
    assert trace.report.malformed == 1
    assert trace.report.first_problem.startswith("line 4: ")


@pytest.mark.parametrize(
    "row",
    [
        "{",
        "[1, 2]",
        "7",
        "null",
        '{"timestamp": 5}',
        '{"timestamp": true, "input_length": 3, "output_length": 4}',
        '{"timestamp": "5", "input_length": 3, "output_length": 4}',
        '{"timestamp": 5, "input_length": -3, "output_length": 4}',
        '{"timestamp": NaN, "input_length": 3, "output_length": 4}',
        '{"timestamp": 5, "input_length": "3", "output_length": 4}',
        b'{"timestamp": 5, "input_length": 3, "output_length": 4, "x": "\xff"}',
        "[" * 100_000,
    ],
)
def test_a_malformed_json_line_is_left_out_and_counted(write, row):
    row = row if isinstance(row, bytes) else row.encode()
    trace = Trace(write(MOONCAKE.encode() + row + b"\n"))
    assert len(list(trace.rows())) == 2
    assert trace.report.malformed == 1


def test_too_many_malformed_rows_are_an_error_that_names_the_first(write):
    text = burst(range(5)) + "x,M,1,1,2,y\n" * 11
    path = write(text)
    with pytest.raises(ConfigError, match=r"11 of 16 rows are unusable; the first: line 7: 'x'"):
        rows(path)


def test_one_in_a_hundred_is_not_too_many(write):
    body = "".join(f"{i},M,{'x' if i % 100 == 7 else 3},5,8,y\n" for i in range(5000))
    trace = Trace(write(burst([]) + body))
    assert len(list(trace.rows())) == 4950
    assert trace.report.malformed == 50


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf  \r\n", "is empty"),
        (b"hello, world\n", "format not known"),
        (b'{"a": 1}\n', "format not known"),
        (b"\x1f\x8b\x08\x00", "is compressed"),
        (b"PK\x03\x04", "is compressed"),
        (b"\xfd7zXZ\x00", "is compressed"),
        (b"\x28\xb5\x2f\xfd\x04", "is compressed"),
        (b"7z\xbc\xaf\x27\x1c", "is compressed"),
        (b"\x04\x22\x4d\x18d", "is compressed"),
        (b"PAR1\x15\x04", "is a Parquet file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\n", "Git LFS"),
        (b"<!DOCTYPE html>\n<title>404</title>", "is an HTML page"),
        (AZURE.replace("\n", "\r").encode(), "lines end in CR alone"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n05/10/2024 02:00,1,1\n", "no date of ISO"),
        ("TIMESTAMP".encode("utf-16"), "is UTF-16"),
        (b"a\0b", "is a binary file"),
        (b"[]", "no usable row"),
        (b"[1, 2]", "no usable row; line 1"),
        (b"[{]", "not valid JSON from line 1 on"),
        (b'[\n{"conversations": []},\n{"conv', "not valid JSON from line 3 on"),
        (AZURE.split("\n")[0].encode(), "no usable row"),
        (b"Timestamp,Request tokens,Response tokens\nx,1,1\n", "no usable row; line 2: 'x'"),
        (b"Timestamp,Request tokens,Response tokens\n1,5,0\n", "no usable row"),
    ],
)
def test_a_file_that_is_no_trace_gets_one_clear_line(write, data, why):
    path = write(data)
    with pytest.raises(ConfigError, match=why) as caught:
        Trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            Trace(path)


# --- size ----------------------------------------------------------------------------------


def peak_while(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Lines and array items alike: the largest file is many times what may be held."""
    csv_path, json_path = tmp_path / "t.csv", tmp_path / "t.json"
    with csv_path.open("w") as file:
        file.write(burst([]))
        file.writelines(f"{i},ChatGPT,{i % 900 + 1},7,9,{'x' * 1500}\n" for i in range(7_000))
    item = json.dumps(SHAREGPT[0] | {"pad": "x" * 40_000})
    with json_path.open("w") as file:
        file.write("[" + ",\n".join([item] * 300) + "]")
    assert min(csv_path.stat().st_size, json_path.stat().st_size) > 10 << 20

    for path, count in ((csv_path, 7_000), (json_path, 300)):
        seen = []

        def read(path=path, seen=seen):
            seen.append(sum(1 for _ in Trace(path).rows()))

        assert peak_while(read) < 6 << 20
        assert seen == [count]


def test_a_line_without_end_is_skipped_in_pieces(write, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 100)
    trace = Trace(write(burst([1]) + "2,M," + "9" * 5000 + ",5,0,x\n" + "3,M,3,5,8,x\n"))
    assert [row.at_s for row in trace.rows()] == [1, 3]
    assert trace.report.first_problem == "line 3: cannot be read"


def test_an_array_item_may_be_larger_than_a_read(write, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK", 7)
    assert len(rows(write(json.dumps(SHAREGPT, indent=1)))) == 2


def test_an_array_item_without_end_is_an_error(write, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 1000)
    monkeypatch.setattr(lines, "CHUNK", 100)
    with pytest.raises(ConfigError, match="not valid JSON from line 1 on"):
        Trace(write('[{"conversations": "' + "x" * 100_000))


def test_two_passes_at_once_do_not_disturb_each_other(write):
    trace = Trace(write(burst(range(50))))
    assert [a == b for a, b in zip(trace.rows(), trace.rows(), strict=True)] == [True] * 50
