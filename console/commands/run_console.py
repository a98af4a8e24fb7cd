"""Opening a console on this terminal, until it is closed."""

from __future__ import annotations

from typing import Any


def run_console(console: Any) -> None:
    _keep_logs_off_the_screen()
    console.run()
    if console.exit_error is not None:
        raise console.exit_error


def _keep_logs_off_the_screen() -> None:
    """What the engine logs goes to a file while the console has the terminal."""
    import logging

    from engine.paths import user_folder

    folder = user_folder()
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=folder / "evewatch.log",
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        level=logging.WARNING,
        force=True,
    )
