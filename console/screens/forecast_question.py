"""The question of a forecast as a form: `forecast run`'s options, those most asked for on lines of
their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from checklists.tomlfile import FieldError, checked
from console.renderables.lines import ALARM, BLANK, Line
from console.screens.dialogs import ConfirmScreen, FormField, FormScreen, paragraph
from console.screens.files import is_file
from engine.errors import ConfigError
from playbooks.runs.overrides import read_value
from playbooks.steps.fields import StepField, fields_of
from playbooks.steps.forecast import ForecastStep

MORE = "more"
"""The line for all other options."""
LINES = (
    FormField("history", "history", hint="CSV of counts, Prometheus JSON, trace, recording"),
    FormField("calendar", "calendar", hint="TOML of holidays and campaigns; or `none`"),
    FormField("days", "days", hint="1"),
    FormField("lengths", "lengths", hint="those of the history; or as of `load`"),
    FormField("replicas", "replicas", hint="1"),
    FormField("autoscale", "autoscale", hint="2-20:24,90s; or `none`"),
    FormField("lose", "lose", hint="1@20:00+30m; …"),
    FormField("slo", "objective", hint="ttft=2s,tpot=150"),
    FormField("what_if", "what-ifs", hint="replicas=6; max_batch=32,kv_format=fp16; …"),
    FormField("fit", "fit", hint="this engine's own; or a file"),
    FormField(MORE, "more", hint="share=0.95; plausible=20; zone=Europe/Berlin; …"),
)
OF = {field.name: field for field in fields_of(ForecastStep)}
FILES = ("history", "calendar", "fit")
ABOVE = (
    "The coming days are simulated beside the engine, which is sent nothing: on another core, and "
    "behind whatever the engine needs."
)
MEASURE = (
    "It can be measured now: two minutes of load on an engine of its own that shares this one's "
    "weights, then the forecast, as a playbook. The console's own load is held back meanwhile; "
    "requests of others are not, and would be measured with it."
)
Texts = Mapping[str, str]
"""By the names of LINES."""


class MeasureQuestion(ConfirmScreen):
    """Of an engine that has no fit. `why`: in the words of who asked for it."""

    def __init__(self, why: str) -> None:
        super().__init__("Measure this engine first?", MEASURE)
        self._why = why

    def consequence(self) -> list[Line]:
        return [*paragraph(self._why, ALARM), BLANK, *paragraph(self._consequence)]


def question(texts: Texts, wrong: str = "") -> FormScreen:
    """With `texts` in its lines. `wrong`: why there is no forecast of them."""
    fields = [replace(one, value=texts.get(one.name, ""), check=_check(one.name)) for one in LINES]
    above = paragraph(wrong, ALARM) if wrong else paragraph(ABOVE)
    return FormScreen("A forecast", fields, [*above, BLANK])


def step_of(texts: Texts) -> ForecastStep:
    """Raises ConfigError."""
    return checked(ForecastStep, dict(_given(texts)))


def texts_of(report: Mapping[str, Any]) -> Texts:
    """What a report was asked; empty where it does not say."""
    step = (report.get("asked") or {}).get("step") or {}
    told = {name: _text(step[name]) for name, field in OF.items() if _is_told(field, step)}
    lines = {one.name: told.pop(one.name) for one in LINES if one.name in told}
    return lines | {MORE: "; ".join(f"{name}={text}" for name, text in told.items())}


def _is_told(field: StepField, step: Mapping[str, Any]) -> bool:
    default = list(field.default) if field.is_list else field.default
    return field.name in step and step[field.name] != default


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _given(texts: Texts) -> Iterator[tuple[str, Any]]:
    """Names of the step's fields, and values. Raises ConfigError."""
    for name, text in texts.items():
        if name != MORE and text.strip():
            yield name, _value(name, text.strip())
    for part in _parts(texts.get(MORE, "")):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"{part!r}: expected option=value")
        yield name, _value(name, text)


def _value(name: str, text: str) -> Any:
    field = OF.get(name)
    if name in FILES:
        return str(Path(text).expanduser())
    if field is not None and field.is_list:
        return _parts(text)
    is_text = field is not None and str in (field.type, *get_args(field.type))
    return text if is_text else read_value(text)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def _check(name: str) -> Callable[[str], str]:
    """What is wrong with a line's text, "" if nothing."""

    def check(text: str) -> str:
        if not text.strip():
            return "a file must stand here" if name == "history" else ""
        if name in FILES:
            return is_file(text)
        try:
            step_of({name: text})
        except FieldError as error:
            return str(error) if name == MORE else error.what.removeprefix(f"{name}: ")
        except ConfigError as error:
            return str(error)
        return ""

    return check
