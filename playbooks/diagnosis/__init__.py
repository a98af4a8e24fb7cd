"""Diagnosis: from the evidence of a run to named causes. Pure functions, no measuring."""

from playbooks.diagnosis.causes import CAUSES, OF_HOST, UNPLANNED, Cause, diagnose, facts_needed
from playbooks.diagnosis.evidence import FACTS, Evidence, Growth, StepCurve, from_snapshots
from playbooks.diagnosis.findings import HEALTHY, INCONCLUSIVE, Finding
from playbooks.diagnosis.seen import Broken, Deviation, Restarts, Tail, Usual

__all__ = [
    "CAUSES", "FACTS", "HEALTHY", "INCONCLUSIVE", "OF_HOST", "UNPLANNED", "Broken", "Cause",
    "Deviation", "Evidence", "Finding", "Growth", "Restarts", "StepCurve", "Tail", "Usual",
    "diagnose", "facts_needed", "from_snapshots",
]  # fmt: skip
