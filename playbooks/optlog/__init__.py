"""The optimization log: what was changed, why, what it did, what went wrong. Append-only.

OptLog().append(Record("Cap 48", what=(Change("max_batch", 64, 48),), why="knee at 64"))
"""

from playbooks.optlog.provenance import provenance_of
from playbooks.optlog.record import Change, LogEffect, Record
from playbooks.optlog.store import LogDamage, OptLog, Reading

__all__ = ["Change", "LogDamage", "LogEffect", "OptLog", "Reading", "Record", "provenance_of"]
