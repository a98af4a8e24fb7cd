"""Limits of the machine that a load runs on: raised where they can be, named where not.

What fails at one of them is the client's own failure, counted apart and never a fault of the
target's.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

try:
    import resource
except ImportError:  # not a Unix: no such limits
    resource = None  # type: ignore[assignment]

CLIENT_LIMIT = "client_limit"
"""The kind of failure of a request that this machine could not send."""
_OURS = {
    errno.EMFILE: "open files of this process (ulimit -n)",
    errno.ENFILE: "open files of this machine (fs.file-max)",
    errno.EADDRNOTAVAIL: "free ports of this machine (net.ipv4.ip_local_port_range)",
    errno.ENOBUFS: "network buffers of this machine",
    errno.ENOMEM: "memory of this machine",
}


def raise_open_files() -> int | None:
    """Raise this process's limit of open files as far as it may; the limit now in force, None
    where there is none."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # some systems say "unlimited" and mean less
            pass
    return None if soft == resource.RLIM_INFINITY else soft


def limit_named(error: BaseException) -> str | None:
    """The limit of this machine that the error comes from; None: it is none."""
    found = (one.errno for one in _causes(error) if isinstance(one, OSError))
    return next((_OURS[number] for number in found if number in _OURS), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all that led to it."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _causes(one)
        error = error.__cause__ or error.__context__
