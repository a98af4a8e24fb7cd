"""What is extracted from code: whole sentences with named places."""

import io

import pytest

from console.locale.extract import extract_python, extract_toml


def found(code):
    return [m for _, _, m, _ in extract_python(io.BytesIO(code.encode()), None, None, {})]


@pytest.mark.parametrize(
    ("code", "messages"),
    [
        ('say("no room is left")', ["no room is left"]),
        ('say(f"{a.failed:,} of {len(all)} failed")', ["{failed:n} of {all:n} failed"]),
        ('say(f"{x} and {x} differ")', ["{x} and {x2} differ"]),
        ('say("one " "text " + name + " here")', ["one text {name} here"]),
        ('say(f"{n} request{\'s\' * (n != 1)} wait")',
         [("{n} request wait", "{n} requests wait")]),
        ('say(f"it {\'holds\' if ok else \'fails\'} now")', ["it holds now", "it fails now"]),
        ('say(f"all is well{f\' at {where}\' if where else \'\'}")',
         ["all is well at {where}", "all is well"]),
        ('say(f"{{x}} is a set")', ["{{x}} is a set"]),
        ('Column("share")', ["share"]),
        ('x["some key"] = d.get("some key") == "some text"', []),
        ('raise ConfigError(f"{path}: not a file")', ["{path}: not a file"]),
        ('assert ok, "this is a bug"', []),
        ('say("two words")  # not shown', []),
        ('# not shown\nsay("two words")', []),
        ('re.compile("two words")', []),
        ('log.warning("two words %s", x)', []),
        ('say(f"{a}: {b}")', []),
        ('say("`evewatch log show`")', []),
        ('said("{n} of {all} wait", n=x)', ["{n} of {all} wait"]),
        ('head = f"{\'running\':>9}{\'KV\':>8}"', ["running", "KV"]),
    ],
)  # fmt: skip
def test_of_an_expression(code, messages):
    assert found(code) == messages


def test_texts_of_local_variables_are_put_in():
    code = """
def f(n, where):
    size = "" if n is None else f" of {n} tokens"
    note = f"{x} steps{size} were full"
    return note
"""
    assert found(code) == ["{x} steps were full", "{x} steps of {n} tokens were full"]


def test_what_is_added_makes_longer_sentences_and_clauses_of_their_own():
    code = """
def f(row):
    text = "it ended"
    if row:
        text += f" early, at {row}"
    text += "; nobody knows why"
    return text
"""
    assert sorted(set(found(code))) == ["it ended", "it ended early, at {row}", "nobody knows why"]


def test_help_of_commands_and_options():
    code = '''
@command_options()
def run(
    folder: Annotated[Path | None, typer.Option("--folder", metavar="A DIR", help="Where.")] = None,
) -> None:
    """Run it.

    Exit code 1: it
    failed.
    """

def other():
    """No help of anything."""
'''
    assert sorted(found(code)) == ["Exit code 1: it failed.", "Run it.", "Where."]


def test_prose_of_toml():
    text = (
        b'title = "A day before"\nid = "not this one"\n[[x]]\nwhy = """\nOne line\nand more."""\n'
    )
    assert [m for _, _, m, _ in extract_toml(io.BytesIO(text), None, None, {})] == [
        "A day before", "One line and more.",
    ]  # fmt: skip
