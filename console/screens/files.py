"""Asking for a file to write to, and writing it off the UI's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from console.control.surface import ConsoleSurface
from console.screens.dialogs import ConfirmScreen, FormField, FormScreen, ask, ask_first
from engine.errors import EngineError
from engine.paths import write_private

Make = Callable[[Path, str], str]
"""The path and its format, one of those allowed -> the file's text."""


def ask_file(
    app: ConsoleSurface, title: str, name: str, formats: Sequence[str], make: Make
) -> None:
    """The ending of the name says the format. A file that is there is only replaced on a yes."""

    def entered(texts: dict[str, str]) -> None:
        path = Path(texts["file"]).expanduser()
        if path.exists():
            question = ConfirmScreen(
                f"Replace {path.name}?", f"{path} is there already.", "replace"
            )
            ask_first(app, question, lambda: _write(app, path, make))
        else:
            _write(app, path, make)

    entry = FormField("file", "file", name, check=lambda text: wrong_name(text, formats))
    ask(app, FormScreen(title, [entry]), entered)


def wrong_name(text: str, formats: Sequence[str]) -> str:
    """What is wrong with the name of a file to write, "" if nothing."""
    try:
        path = Path(text).expanduser()
        path.exists()  # it is asked again: what cannot be looked at is refused here
        is_there = path.absolute().parent.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # no such user, too long, forbidden
        return f"there can be no such file ({error})"
    if path.suffix.lstrip(".") not in formats:
        return f"the name must end in {', '.join('.' + f for f in formats)}"
    return "" if is_there else "there is no such folder"


def _write(app: ConsoleSurface, path: Path, make: Make) -> None:
    def work() -> None:
        try:
            write_private(path, make(path, path.suffix.lstrip(".")))
        except (OSError, EngineError) as error:
            app.say(f"{path}: not written ({error})", severity="error")
        else:
            app.say(f"written: {path}")

    app.run_worker(work, thread=True)


def is_file(text: str) -> str:
    """What is wrong with the name of a file to read, "" if nothing."""
    try:
        there = Path(text.strip()).expanduser().is_file()
    except (OSError, RuntimeError, ValueError) as error:
        return f"there can be no such file ({error})"
    return "" if there else "there is no such file"
