"""How many connections the process's limit of open files leaves room for."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from console.server.settings import ServerSettings
from engine.errors import ConfigError

ACCEPTED_AT_ONCE = 4
"""Connections taken in one turn of the loop."""
RESERVE = 8 * ACCEPTED_AT_ONCE
"""Files kept free: taking a connection and refusing it lasts four turns, twice as many as one turn
takes may linger after that, and the process opens files of its own."""


def within_open_files(settings: ServerSettings) -> ServerSettings:
    """`settings` with no more connections than there can be files; the process's own limit is
    raised as far as the system lets it. ConfigError when there is no room for a single one."""
    limit, used = _raised(settings.max_connections + RESERVE), _open_now()
    if limit is None:
        return settings
    room = limit - used - RESERVE
    if room < 1:
        raise ConfigError(
            f"the limit of open files is {limit} and {used} are open, which leaves no room for "
            f"connections; raise it (ulimit -n) to at least {used + RESERVE + 1}"
        )
    return replace(settings, max_connections=min(settings.max_connections, room))


def _raised(more: int) -> int | None:
    """The limit, after `more` files were asked for; None where there is none."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _open_now() + more
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return None if soft == resource.RLIM_INFINITY else soft


def _open_now() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(folder):
            return len(os.listdir(folder))
    return 64  # unknown: about what a process with an engine has
