"""Options made from a step's model: types, defaults, and errors that name the flag."""

import pytest
import typer
from typer.testing import CliRunner

from console.commands.step_options import step_options
from engine.errors import ConfigError
from playbooks.steps.models import CanaryStep, LoadStep, QualityStep, SoakStep, SweepStep


def parsed(model, *arguments, **changes):
    """The step that a command with these arguments gets."""
    got = []
    app = typer.Typer()

    @app.command()
    @step_options(model, **changes)
    def command(step: model, other: int = 3) -> None:
        got.append((step, other))

    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return got[0][0]


@pytest.mark.parametrize("model", [LoadStep, SweepStep, QualityStep, SoakStep, CanaryStep])
def test_without_arguments_a_command_gets_the_defaults(model):
    assert parsed(model) == model()


def test_values_are_of_the_models_types():
    assert parsed(SweepStep, "--batches", "1, 2,4").batches == (1, 2, 4)
    assert parsed(SweepStep, "--p99-objective", "250").p99_objective_ms == 250.0
    assert parsed(SoakStep, "--duration", "1.5m", "--no-storms") == SoakStep(
        duration_s=90.0, storms=False
    )
    assert parsed(CanaryStep, "--waive", "memory,quality").waive == ("memory", "quality")
    both = parsed(QualityStep, "--cases", "a,b.toml", "--cases", "c.jsonl")
    assert both.cases == ("a,b.toml", "c.jsonl")


def test_a_command_may_have_its_own_defaults_and_leave_fields_out():
    assert parsed(SoakStep, requests=600, waves=12) == SoakStep(600, 12)
    with pytest.raises(AssertionError, match="No such option"):
        parsed(SoakStep, "--waves", "9", omit=("waves",))


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (LoadStep, ("--requests", "0"), "--requests: expected at least 1, got 0"),
        (LoadStep, ("--duration", "soon"), "--duration: 'soon' is not a time"),
        (LoadStep, ("--arrivals", "poison:5"), "--arrivals: 'poison:5' is not known"),
        (SweepStep, ("--batches", "1;2"), "--batches: '1;2': expected whole numbers with commas"),
        (SweepStep, ("--batches", "4,2"), "batches: expected sizes that rise"),
        (SweepStep, ("--p99-of", "luck"), "--p99-of: expected one of e2e, ttft, tpot, got 'luck'"),
        (CanaryStep, ("--waive", "luck"), "--waive: expected one of memory, quality, crosstalk"),
    ],
)
def test_what_is_wrong_names_the_flag(model, arguments, message):
    with pytest.raises(ConfigError) as caught:
        parsed(model, *arguments)
    assert str(caught.value).startswith(message)
