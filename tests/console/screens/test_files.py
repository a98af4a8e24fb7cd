"""Names of files to export to."""

import pytest

from console.screens.files import wrong_name

FORMATS = ("md", "json")


def test_a_name_in_a_folder_that_is_there_is_right(tmp_path):
    assert wrong_name(str(tmp_path / "a.md"), FORMATS) == ""
    assert wrong_name("a.json", FORMATS) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a.txt", "must end in .md, .json"),
        ("", "must end in"),
        ("no-such-folder/a.md", "no such folder"),
        ("~nobody-has-this-name/a.md", "no such file"),
        ("a" * 5000 + ".md", "no such file"),
        ("a" * 300 + "/a.md", "no such file"),
    ],
)
def test_what_cannot_be_written_is_said_and_raises_nothing(name, why):
    assert why in wrong_name(name, FORMATS)
