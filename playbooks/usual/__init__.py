"""What is usual: the figures of healthy runs, and the next run held against them."""

from playbooks.usual.figures import beside, better, figures_of
from playbooks.usual.kept import KeptRun, KeptRuns, own_place, path_in
from playbooks.usual.since import changes_since

__all__ = [
    "KeptRun",
    "KeptRuns",
    "beside",
    "better",
    "changes_since",
    "figures_of",
    "own_place",
    "path_in",
]
