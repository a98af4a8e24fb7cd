"""`evewatch log`, `env`, `explain` and `checklist`: output, exit codes, and who writes the log."""

import json

import pytest
from typer.testing import CliRunner

from builders import tiny_spec, tiny_tensors
from console import cli
from console.exits import Exit
from engine.errors import ConfigError
from engine.simulated.demo import DemoEngine
from model_files import write_hf
from playbooks.optlog import OptLog
from report_schemas import violations


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = tiny_spec()
    return write_hf(tmp_path_factory.mktemp("model"), spec, tiny_tensors(spec))


def run(*arguments, input=None):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], input=input)


def ran(*arguments, code=Exit.PASSED, **more):
    done = run(*arguments, **more)
    assert done.exit_code == code, (done.output, done.exception)
    return done


def report(*arguments, code=Exit.PASSED):
    """JSON of a command, which must be all of standard output."""
    return json.loads(ran(*arguments, "--json", code=code).stdout)


def add(*more, title="Cap 48"):
    return report("log", "add", "--title", title, "--what", "max_batch=64:48",
                  "--effect", "e2e_p99_ms=812.5:430", *more)["records"][0]  # fmt: skip


# --- log ------------------------------------------------------------------------------------


def test_a_record_is_added_listed_and_shown(tmp_path):
    record = add("--why", "knee at 64", "--problem", "noisy", "--decision", "adopt",
                 "--rollback", "set 64", "--operator", "Ana", "--how", "seed=7")  # fmt: skip
    assert violations(record, "log_record") == []
    assert record["what"] == [{"key": "max_batch", "before": 64, "after": 48}]
    assert record["environment"]["torch"]
    listed = report("log", "list")
    assert violations(listed, "log") == []
    assert listed["records"] == [record]
    assert listed["file"] == str(tmp_path / "optlog.jsonl")
    table = ran("log", "list").stdout
    assert record["id"][:8] in table and "Cap 48" in table and "adopt" in table
    page = ran("log", "show").stdout
    for text in ("What changed", "knee at 64", "noisy", "set 64", "-47.1%", "by Ana", "• seed: 7"):
        assert text in page
    assert report("log", "show", record["id"][:5])["records"] == [record]


def test_an_empty_log_says_so_and_exports_nothing():
    assert "no records yet" in ran("log", "list").stdout
    assert report("log", "list")["records"] == []
    assert ran("log", "verify").stdout.startswith("0 records")
    assert "0 records" in ran("log", "export").stdout


def test_filters_reach_the_records():
    add("--decision", "adopt", title="one")
    add("--decision", "reject", "--problem", "GPU was hot", title="two")

    def titles(*filters):
        return [r["title"] for r in report("log", "list", *filters)["records"]]

    assert titles("--decision", "adopt,reject") == ["one", "two"]
    assert titles("--decision", "adopt", "--decision", "hold") == ["one"]
    assert titles("--text", "hot") == ["two"]
    assert titles("--metric", "p99", "--last", 1) == ["two"]
    assert titles("--since", "1h", "--until", "2999-01-01") == ["one", "two"]
    assert titles("--until", "2020-01-01") == []
    assert "no record matches" in ran("log", "list", "--text", "zzz").stdout


@pytest.mark.parametrize(
    ("fmt", "begins"),
    [("md", "# Optimization log"), ("csv", "id,time,title"), ("json", "{\n"),
     ("html", "<!doctype html>")],
)  # fmt: skip
def test_the_log_is_exported_in_every_format(tmp_path, fmt, begins):
    add()
    assert ran("log", "export", "--format", fmt).stdout.startswith(begins)
    path = tmp_path / f"log.{fmt}"
    done = ran("log", "export", "--out", path, "--text", "cap")
    assert path.read_text("utf-8").startswith(begins)
    assert done.stdout == ""
    assert "1 records written" in done.stderr


def test_verify_passes_warns_and_fails(tmp_path):
    add(title="one")
    add(title="two")
    path = tmp_path / "optlog.jsonl"
    whole = path.read_bytes()
    good = report("log", "verify")
    assert violations(good, "log_verify") == []
    assert (good["verdict"], good["records"]) == ("pass", 2)
    assert report("log", "verify", "--head", good["head"][:12])["verdict"] == "pass"

    path.write_bytes(whole[:-20])  # a power cut
    torn = report("log", "verify")
    assert (torn["verdict"], torn["records"], torn["damage"][0]["kind"]) == ("warn", 1, "torn")
    assert "is torn" in run("log", "list").stderr
    assert "kept in optlog.jsonl.torn" in ran("log", "add", "--title", "three").stderr
    after = report("log", "verify")
    assert (after["verdict"], after["records"], after["set_aside"]) == ("pass", 2, 1)
    gone = report("log", "verify", "--head", good["head"], code=Exit.GATE_FAILED)
    assert good["head"] in gone["damage"][0]["text"]

    path.write_bytes(whole.replace(b'"one"', b'"uno"', 1))
    bad = report("log", "verify", code=Exit.GATE_FAILED)
    assert (bad["verdict"], bad["damage"][0]["kind"]) == ("fail", "altered")
    assert bad["damage"][0]["id"] in ran("log", "verify", code=Exit.GATE_FAILED).stdout


def test_a_decision_on_a_record_and_the_difference_of_the_two():
    first = add("--why", "knee at 64")
    second = report("log", "add", "--from", first["id"][:6], "--decision", "rolled_back", "--why",
                    "p99 rose", "--effect", "e2e_p99_ms=430:900")["records"][0]  # fmt: skip
    assert second["title"] == "rolled back: Cap 48"
    assert second["what"] == first["what"]
    found = report("log", "diff", first["id"])
    assert violations(found, "log_diff") == []
    assert found["effect"][0] | {"change": 0} == {
        "metric": "e2e_p99_ms", "a": 430, "b": 900, "change": 0, "verdict_a": None,
        "verdict_b": None,
    }  # fmt: skip
    assert "+109.3%" in ran("log", "diff", "--", "-2", "-1").stdout


def test_another_file_is_another_log(tmp_path):
    other = tmp_path / "team.jsonl"
    add("--file", other)
    assert report("log", "list", "--file", other)["total"] == 1
    assert report("log", "list")["total"] == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("log", "add"), "title"),
        (("log", "add", "--title", "x", "--what", "cap"), "key=before:after"),
        (("log", "add", "--title", "x", "--decision", "maybe"), "adopt, reject"),
        (("log", "add", "--title", "x", "--claim", "felt"), "measured, inferred"),
        (("log", "add", "--from", "last"), "no records yet"),
        (("log", "show", "abc"), "no records yet"),
        (("log", "diff", "a", "b"), "no records yet"),
        (("log", "list", "--since", "soon"), "--since"),
        (("log", "list", "--decision", "maybe"), "--decision"),
        (("log", "list", "--last", "0"), "--last"),
        (("log", "list", "--file", "none.jsonl"), "no such file"),
        (("log", "verify", "--file", "none.jsonl"), "no such file"),
        (("log", "export", "--format", "pdf"), "md, csv, json, html"),
        (("log", "export", "--out", "x.docx"), "docx"),
        (("log", "export", "--format", "md", "--out", "none/x.md"), "cannot be written"),
        (("env", "--pid", "4194999"), "--pid"),
        (("explain", "x", "--most", "0"), "--most"),
        (("checklist", "show", "nobody"), "those that ship"),
        (("checklist", "run", "nobody"), "those that ship"),
        (("checklist", "run", "pre_holiday", "--target", "here"), "--target"),
        (("checklist", "run", "pre_holiday", "--snapshot", "none.json"), "cannot be read"),
        (("checklist", "run", "pre_holiday", "--answers", "none.toml"), "cannot be read"),
        (("checklist", "run", "pre_holiday", "--duration", "0"), "--duration"),
        (("checklist", "run", "pre_holiday", "--requests", "0"), "--requests"),
        (("checklist", "run", "pre_holiday", "--sign-off", " "), "--sign-off"),
        (("checklist", "run", "pre_holiday", "--out", "x.pdf"), "ending in"),
        (("checklist", "run", "pre_holiday", "--target", "http://h", "--token-env", "NO_SUCH"),
         "NO_SUCH"),
        (("checklist", "export", "pre_holiday", "--format", "pdf"), "md, html"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(arguments, why):
    done = run(*arguments)
    assert isinstance(done.exception, ConfigError), done.output
    assert why in str(done.exception)
    assert "\n" not in str(done.exception)


# --- who writes the log ---------------------------------------------------------------------


def tiny(folder):
    return ("--model", folder, "--max-batch", 8, "--set", "token_budget=32", "--kv-memory", "4M")


COMPARE = ("compare", "--change", "kv_format=fp16", "--requests", 4, "--repeats", 2,
           "--prompt-mean", 8, "--output-mean", 5, "--json")  # fmt: skip
SWEEP = ("sweep", "--batches", "1,2", "--repeats", 2, "--least-requests", 3,
         "--requests-per-user", 2, "--lengths", "lognormal:8,8", "--json")  # fmt: skip


def check_record(record, folder, title):
    assert title in record.title
    assert record.environment["model"] == str(folder)
    assert record.environment["config_hash"]
    assert any(path.endswith("/r.json") for path in record.artifacts)
    assert any("results" in path for path in record.artifacts)


def test_a_sweep_writes_what_it_found(folder):
    done = run(*SWEEP, *tiny(folder), "--out", "r.json")
    assert done.exit_code == Exit.INCONCLUSIVE, done.output
    json.loads(done.stdout)  # what is said of the log is on standard error
    assert "logged as" in done.stderr
    (record,) = OptLog().read().records
    check_record(record, folder, "sweep 1 … 2: no knee found")
    assert record.problems
    run(*SWEEP, *tiny(folder), "--no-log", "--quiet")
    assert len(OptLog().read().records) == 1


def test_a_log_that_cannot_be_written_does_not_cost_the_measurement(folder, tmp_path):
    path = tmp_path / "optlog.jsonl"
    path.write_text("these are notes\n")
    done = run(*COMPARE, *tiny(folder), "--out", "r.json")
    assert done.exit_code == Exit.PASSED
    assert json.loads(done.stdout)["kind"] == "compare"
    assert "not in the log" in done.stderr
    assert path.read_text() == "these are notes\n"
    path.unlink()
    run(*COMPARE, *tiny(folder), "--out", "r.json")
    (record,) = OptLog().read().records
    check_record(record, folder, "base → kv_format=fp16")


def test_a_quality_check_writes_its_verdict(folder, tmp_path):
    (tmp_path / "own.jsonl").write_text('{"prompt": "Count to ten.", "max_tokens": 4}\n')
    command = ("quality", "--model", folder, "--no-golden", "--cases", "own.jsonl", "--quick",
               "--quiet", "--set", "kernels=reference")  # fmt: skip
    verdict = json.loads(run(*command, "--json").stdout)["verdict"]
    (record,) = OptLog().read().records
    assert record.title == f"Quality, int8_channel against fp16: {verdict}"
    run(*command, "--no-log")
    assert len(OptLog().read().records) == 1


# --- env and explain --------------------------------------------------------------------------


def test_env_names_what_is_here():
    found = run("env", "--json")
    data = json.loads(found.stdout)
    assert violations(data, "environment") == []
    assert found.exit_code == (Exit.GATE_FAILED if data["verdict"] == "fail" else Exit.PASSED)
    assert "python" in run("env").stdout


def test_a_failing_environment_ends_with_its_code(monkeypatch):
    from playbooks.environment import step as environment
    from playbooks.environment.facts import EnvironmentFacts

    monkeypatch.setattr(environment, "gather", lambda: EnvironmentFacts(python="3.9.1"))
    done = ran("env", code=Exit.GATE_FAILED)
    assert "EveWatch needs 3.11" in done.stdout
    assert "install a newer Python" in done.stdout


def test_explain_answers_or_suggests():
    found = report("explain", "p99", "up")
    assert violations(found, "explain") == []
    assert found["entries"][0]["id"] == "latency_up_with_throughput"
    assert "confirm       evewatch profile" in ran("explain", "p99 up").stdout
    nothing = report("explain", "xyzzy", code=Exit.INCONCLUSIVE)
    assert violations(nothing, "explain") == []
    assert len(nothing["suggestions"]) == 5
    assert "perhaps one of these" in ran("explain", "xyzzy", code=Exit.INCONCLUSIVE).stdout
    assert len(ran("explain").stdout.splitlines()) > 20


# --- checklist --------------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path):
    path = tmp_path / "snapshot.json"
    path.write_text(DemoEngine("typical", clock=lambda: 1000.0).snapshot().to_json())
    return path


def verdicts(data):
    return {item["id"]: item["verdict"] for item in data["items"]}


def test_lists_are_listed_shown_and_exported(tmp_path):
    assert [row["name"] for row in report("checklist", "list")["checklists"]] == [
        "canary_rollout", "kv_quant_change", "pre_holiday", "version_upgrade"
    ]  # fmt: skip
    assert "pre_holiday" in ran("checklist", "list").stdout
    shown = report("checklist", "show", "pre_holiday")
    assert violations(shown, "checklist") == []
    assert set(verdicts(shown).values()) == {"unknown"}
    assert "undo " in ran("checklist", "show", "canary_rollout").stdout
    for fmt, begins in (("md", "# Before a holiday"), ("html", "<!doctype"), ("csv", "item,why"),
                        ("json", "{"), ("toml", "# Answers to pre_holiday")):  # fmt: skip
        assert ran("checklist", "export", "pre_holiday", "--format", fmt).stdout.startswith(begins)
        ran("checklist", "export", "pre_holiday", "--out", tmp_path / f"list.{fmt}")
        assert (tmp_path / f"list.{fmt}").read_text("utf-8").startswith(begins)


def test_a_snapshot_answers_what_it_shows_and_no_more(snapshot):
    data = report("checklist", "run", "pre_holiday", "--snapshot", snapshot,
                  code=Exit.INCONCLUSIVE)  # fmt: skip
    assert violations(data, "checklist") == []
    found = verdicts(data)
    assert found["live"] == found["kv_room"] == "pass"
    assert found["versions"] == "unknown"  # a file has no environment
    human = [item for item in data["items"] if item["kind"] == "human"]
    assert {item["verdict"] for item in human} == {"unknown"}
    assert OptLog().read().records == ()  # nobody signed


def test_a_report_of_watch_is_read_too(snapshot, tmp_path):
    watched = {"kind": "watch", "targets": [{"snapshot": json.loads(snapshot.read_text())}]}
    path = tmp_path / "watch.json"
    path.write_text(json.dumps(watched))
    data = report("checklist", "run", "pre_holiday", "--snapshot", path, code=Exit.INCONCLUSIVE)
    assert verdicts(data)["live"] == "pass"
    for broken, why in (({"targets": []}, "one target"), ({"x": 1}, "no snapshot"),
                        ([1], "no snapshot")):  # fmt: skip
        path.write_text(json.dumps(broken))
        done = run("checklist", "run", "pre_holiday", "--snapshot", path)
        assert why in str(done.exception)


def answers_for(name, value="yes"):
    from checklists.book import load

    return "[answers]\n" + "".join(
        f'{item.id} = "{value}"\n' for item in load(name).of_kind("human")
    )


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        'title = "Own"\n[[item]]\nid = "live"\ntext = "t"\nowner = "o"\nwhy = "w"\nkind = "auto"\n'
        'look = "snapshot.source.state"\nexpect = "== live"\n'
        '[[item]]\nid = "read"\ntext = "somebody read it"\nowner = "o"\nwhy = "w"\n'
    )
    return path


def test_a_signed_off_list_goes_to_the_log(own, snapshot, tmp_path):
    (tmp_path / "answers.toml").write_text('read = { answer = "yes", note = "twice" }\n')
    done = ran("checklist", "run", own, "--snapshot", snapshot, "--answers", "answers.toml",
               "--sign-off", "Ana", "--out", "list.md")  # fmt: skip
    assert done.stdout.splitlines()[-1].split() == ["verdict", "pass", "(2", "pass)"]
    assert "logged as" in done.stderr
    (record,) = OptLog().read().records
    assert (record.operator, record.decision, record.problems) == ("Ana", "adopt", ())
    assert record.how["items"][1] == {"item": "read", "verdict": "pass", "by": "Ana",
                                      "found": "answered yes: twice"}  # fmt: skip
    assert "signed off by Ana" in (tmp_path / "list.md").read_text("utf-8")


def test_what_was_open_at_the_signature_is_in_the_log(own, snapshot, tmp_path):
    ran("checklist", "run", own, "--snapshot", snapshot, "--sign-off", "Ana",
        code=Exit.INCONCLUSIVE)  # fmt: skip
    (record,) = OptLog().read().records
    assert record.decision == "hold"
    assert record.problems == (
        "somebody read it: unknown, though it must be so; nobody has answered",
    )
    (tmp_path / "answers.toml").write_text('read = "no"\n')
    ran("checklist", "run", own, "--snapshot", snapshot, "--answers", "answers.toml",
        "--sign-off", "Ana", "--no-log", code=Exit.GATE_FAILED)  # fmt: skip
    assert len(OptLog().read().records) == 1


@pytest.mark.parametrize(
    ("typed", "code", "verdict"),
    [
        ("yes\nlooked\n", Exit.PASSED, "pass"),
        ("y\n\n", Exit.PASSED, "pass"),
        ("n\nnot yet\n", Exit.GATE_FAILED, "fail"),
        ("n/a\none replica\n", Exit.PASSED, "pass"),
        ("n/a\n\n", Exit.INCONCLUSIVE, "unknown"),
        ("\n", Exit.INCONCLUSIVE, "unknown"),
        ("perhaps\n", Exit.INCONCLUSIVE, "unknown"),
    ],
)
def test_a_human_is_asked_on_a_terminal(own, snapshot, typed, code, verdict):
    done = ran("checklist", "run", own, "--snapshot", snapshot, "--ask", "--json", input=typed,
               code=code)  # fmt: skip
    assert "somebody read it" in done.stderr
    data = json.loads(done.stdout.splitlines()[-1])  # before it the runner echoes what is typed
    assert verdicts(data)["read"] == verdict


def test_an_answer_to_no_item_is_refused_before_anything_runs(own, tmp_path):
    (tmp_path / "answers.toml").write_text('luck = "yes"\n')
    done = run("checklist", "run", own, "--answers", "answers.toml", "--model", "nowhere")
    assert "no item 'luck'" in str(done.exception)


def test_the_embedded_engine_is_looked_at_under_light_traffic(folder, tmp_path):
    (tmp_path / "answers.toml").write_text(answers_for("pre_holiday"))
    done = run("checklist", "run", "pre_holiday", *tiny(folder), "--requests", 12, "--json",
               "--answers", "answers.toml", "--out", "list.html", "--quiet")  # fmt: skip
    data = json.loads(done.stdout)
    found = verdicts(data)
    for name in ("live", "not_paused", "no_alarm", "kv_room", "pages_add_up", "nothing_held",
                 "preemption", "failures", "clipping", "peak_tried"):  # fmt: skip
        assert found[name] == "pass", (name, data)
    assert found["p99_known"] == "unknown"  # of twelve requests there is none
    assert found["versions"] in ("pass", "warn", "fail")
    assert data["seconds"] > 0
    assert "☑" in (tmp_path / "list.html").read_text("utf-8")


def test_an_engine_that_does_not_answer_leaves_its_items_open(own):
    data = report("checklist", "run", own, "--target", "http://127.0.0.1:9", "--duration", "0.1",
                  code=Exit.GATE_FAILED)  # fmt: skip
    assert verdicts(data)["live"] == "fail"


def test_an_engine_at_a_url_is_looked_at_and_not_touched(own, tmp_path):
    from served import serving

    with serving() as served:
        data = report("checklist", "run", own, "--target", served.url, "--duration", "0.1",
                      code=Exit.INCONCLUSIVE)  # fmt: skip
        assert verdicts(data) == {"live": "pass", "read": "unknown"}
        assert data["target"] == served.url
        listed = report("checklist", "run", "kv_quant_change", "--target", served.url,
                        "--duration", "0.1", code=Exit.INCONCLUSIVE)  # fmt: skip
        assert verdicts(listed)["format"] == "unknown"  # its settings are not ours to know
        assert verdicts(listed)["saved"] in ("pass", "warn", "fail")
        assert served.engine.snapshot().queue.requests_total in (0, None)
