"""Diagnosis: from the evidence of a run to named causes. Pure functions, no measuring."""

from playbooks.diagnosis.causes import CAUSES, Cause, diagnose, facts_needed
from playbooks.diagnosis.evidence import FACTS, Evidence, Growth, StepCurve, from_snapshots
from playbooks.diagnosis.findings import HEALTHY, INCONCLUSIVE, Finding

__all__ = [
    "CAUSES", "FACTS", "HEALTHY", "INCONCLUSIVE", "Cause", "Evidence", "Finding", "Growth",
    "StepCurve", "diagnose", "facts_needed", "from_snapshots",
]  # fmt: skip
