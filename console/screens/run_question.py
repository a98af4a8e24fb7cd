"""The question before a playbook runs: where, what it will send, and on what terms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from console.renderables import format as fmt
from console.renderables.lines import ALARM, BLANK, Line
from console.screens.dialogs import ConfirmScreen, FormField, FormScreen, ask, one_of, paragraph
from engine.errors import ConfigError
from engine.observing.watchable import Reach
from engine.remote.address import shown
from playbooks.runs.spec import Playbook

if TYPE_CHECKING:
    from playbooks.runs.terms import Terms

INSIDE = (
    "It measures on engines of its own that share this one's weights; the panels show them. "
    "The console's own load is held back meanwhile; requests of others are not, and would be "
    "measured with it."
)
COUNTING = "What it will send is being counted; then it can be run."


class RunQuestion(ConfirmScreen):
    """A yes, on `terms`; `c` changes them. `reach` None: an engine of this process.

    An engine at a URL is sent nothing before it was said how much that is.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "change_terms", "terms", show=False)]

    def __init__(self, playbook: Playbook, reach: Reach | None, terms: Terms) -> None:
        super().__init__(f"Run {playbook.name}?", "", "run it")
        self._playbook, self._reach = playbook, reach
        self.terms = terms
        self._will_send = self._refused = ""
        """What it will send, in words, once that is counted; why it cannot run."""
        self.more = (("c", "terms", "screen.change_terms"),)

    def on_mount(self) -> None:
        super().on_mount()
        self._count()

    def _count(self) -> None:
        if self._reach is not None:
            self._will_send = self._refused = ""
            self.run_worker(self._counted(self._reach), exclusive=True)

    async def _counted(self, reach: Reach) -> None:
        try:
            self._will_send = await asyncio.to_thread(self._announcement, reach)
        except ConfigError as error:
            self._refused = str(error)
        self.fill()

    def _announcement(self, reach: Reach) -> str:
        from playbooks.outside.announce import announcement_of
        from playbooks.outside.site import UrlSite

        site = UrlSite(reach.url, key=reach.token, care=self.terms.care())
        return announcement_of(self._playbook, site).text(self._playbook.time_budget_s)

    def consequence(self) -> list[Line]:
        lines = paragraph(INSIDE if self._reach is None else _outside(self._reach.url), ALARM)
        if (budget := self._playbook.time_budget_s) is not None:
            lines += [BLANK, *paragraph(f"It takes up to {fmt.duration(budget)}.")]
        if self._reach is not None:
            lines += [BLANK, *self._sends()]
        return [*lines, BLANK, *paragraph(f"Terms: {self.terms.words(self._reach is not None)}.")]

    def _sends(self) -> list[Line]:
        if self._refused:
            return paragraph(self._refused, ALARM)
        return paragraph(f"It {self._will_send}." if self._will_send else COUNTING)

    def action_answer(self, yes: bool) -> None:
        if not yes or self._reach is None or self._will_send:
            super().action_answer(yes)

    def action_change_terms(self) -> None:
        form = FormScreen("On what terms it runs", fields(self.terms, self._reach is not None))
        ask(self.app, form, self._changed)

    def _changed(self, texts: dict[str, str]) -> None:
        self.terms = terms_of(texts)
        self._count()
        self.fill()


def _outside(url: str) -> str:
    return (
        f"It sends its requests to {shown(url)}, beside what that engine serves: its users may "
        "feel them. What only the inside of an engine tells is named as a blind spot of the "
        "verdict."
    )


# As `evewatch check` has them.


def fields(terms: Terms, at_url: bool) -> Sequence[FormField]:
    care = (
        FormField("guard", "--guard", ", ".join(terms.guards), "ttft_p99=2000, error_rate=0.1",
                  _refused("guard")),
        FormField("max_share", "--max-share", terms.max_share or "", "20%", _refused("max_share")),
        FormField("disruptive", "--disruptive", _yes(terms.disruptive), "yes or no",
                  one_of("yes", "no")),
    )  # fmt: skip
    usual = (
        FormField("usual", "--usual", terms.usual or "", "FILE.json or `none`; else your own",
                  _refused("usual")),
        FormField("accept", "--accept", _yes(terms.accept), "yes or no", one_of("yes", "no")),
    )  # fmt: skip
    return (*care, *usual) if at_url else usual


def terms_of(texts: dict[str, str]) -> Terms:
    """From a form's texts; what it did not ask for is as by default."""
    from playbooks.runs.terms import Terms

    guards = tuple(part.strip() for part in texts.get("guard", "").split(",") if part.strip())
    return Terms(
        guards,
        texts.get("max_share") or None,
        texts.get("disruptive") == "yes",
        texts.get("usual") or None,
        texts.get("accept") == "yes",
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _refused(name: str) -> Callable[[str], str]:
    """What `check` would say of it, "" if it takes it."""

    def check(text: str) -> str:
        terms = terms_of({name: text.strip()})
        try:
            terms.care()
            if (history := terms.history()) is not None:
                history.check()
        except ConfigError as error:
            return str(error)
        return ""

    return check
