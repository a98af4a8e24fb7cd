"""What a check may do, as it is said on the command line and on the screen."""

import pytest

from engine.errors import ConfigError
from playbooks.outside.care import Care
from playbooks.runs.terms import Terms
from playbooks.usual import own_place


def test_unasked_nothing_is_guarded_and_the_users_own_figures_count(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    terms = Terms()
    assert terms.care() == Care()
    assert terms.history().place == own_place() and not terms.history().accept
    terms.refuse_inside()


def test_what_is_said_is_what_holds():
    terms = Terms(("ttft_p99=2000", "waiting=20"), "20%", True, "mine.json", True)
    assert terms.care() == Care((("ttft_p99", 2000.0), ("waiting", 20.0)), 0.2, True)
    assert str(terms.history().place) == "mine.json" and terms.history().accept
    said = terms.words(at_url=True)
    for part in ("ttft_p99=2000, waiting=20", "20%", "storms allowed", "mine.json", "from now on"):
        assert part in said
    assert "guards" not in terms.words(at_url=False)


def test_usual_figures_can_be_left_alone():
    assert Terms(usual="none").history() is None
    assert "held against nothing" in Terms(usual="none").words(at_url=False)


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        (Terms(usual="none", accept=True), "--accept keeps this run's figures"),
        (Terms(usual="figures"), "--usual figures: expected a file that ends in .json"),
    ],
)
def test_usual_figures_that_cannot_be_are_refused(terms, what):
    with pytest.raises(ConfigError, match=what):
        terms.history()


@pytest.mark.parametrize(
    ("terms", "flag"),
    [
        (Terms(guards=("waiting=3",)), "--guard"),
        (Terms(max_share="20%"), "--max-share"),
        (Terms(disruptive=True), "--disruptive"),
    ],
)
def test_the_embedded_engine_has_no_others_to_care_for(terms, flag):
    with pytest.raises(ConfigError, match=f"{flag}: is of a target that others use"):
        terms.refuse_inside()
