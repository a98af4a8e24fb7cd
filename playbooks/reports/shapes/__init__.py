"""The shapes of the reports; docs/schemas/ is made from them."""

from playbooks.canary.shapes import CANARY_SHAPES
from playbooks.environment.shapes import EnvironmentReport
from playbooks.optlog.shapes import SHAPES as LOG_SHAPES
from playbooks.reports.shapes.checklists import CHECKLIST_SHAPES
from playbooks.reports.shapes.checks import CHECK_SHAPES
from playbooks.reports.shapes.measured import MEASURED_SHAPES

REPORTS: dict[str, type] = {
    **MEASURED_SHAPES,
    "environment": EnvironmentReport,
    **CHECKLIST_SHAPES,
    **LOG_SHAPES,
    **CHECK_SHAPES,
    **CANARY_SHAPES,
}
