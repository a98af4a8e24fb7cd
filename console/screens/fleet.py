"""Fleet: the targets of `evewatch watch`, grouped by model; enter opens one of them."""

from __future__ import annotations

from collections.abc import Sequence

from console import actions
from console.history import History
from console.panels.listpane import ListPane
from console.renderables.fleet import FleetRow, GroupView, head, row_line, rows_of
from console.screens.lists import ListScreen


class FleetScreen(ListScreen[FleetRow]):
    PLACE = actions.FLEET
    TITLE_TEXT = "Fleet"
    EMPTY = "one engine is shown; name several to `evewatch watch` to see a fleet"

    def make_pane(self) -> ListPane[FleetRow]:
        return ListPane(lambda row: row.key, row_line, head, "screen.open_row")

    def items(self) -> Sequence[FleetRow]:
        fleet = getattr(self.console_app.bridge.engine, "fleet", None)
        if fleet is None:
            return []
        groups = [
            GroupView(g.name, g.snapshots, g.merged, g.verdict, g.odd[0].replica if g.odd else None)
            for g in fleet.groups()
        ]
        return rows_of(groups, self.pane.room[0])

    def words_of(self, item: FleetRow) -> str:
        source = item.snapshot.source
        return f"{item.name} {item.text} {source.engine} {source.state}"

    def action_open_row(self) -> None:
        """The usual panels, on the chosen target or on a group's numbers together."""
        row, app = self.pane.choice, self.console_app
        if row is None:
            return
        engine = app.bridge.engine
        if row.kind == "replica":
            engine.choose(target=row.name)  # type: ignore[attr-defined]
        else:
            engine.choose(group=row.name)  # type: ignore[attr-defined]
        app.history = History()
        for snapshot in engine.series():  # type: ignore[attr-defined]
            app.history.push(snapshot)
        self.dismiss()
        app.call_after_refresh(lambda: app.draw(app.bridge.poll()))
