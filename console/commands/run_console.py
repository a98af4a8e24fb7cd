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

    from engine.paths import open_private, private_folder, user_folder

    path = private_folder(user_folder()) / "evewatch.log"
    open_private(path, "ab").close()
    logging.basicConfig(
        filename=path,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        level=logging.WARNING,
        force=True,
    )
