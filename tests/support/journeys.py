"""A running console that a test drives, and what its journeys are of."""

from waiting import until_shown


def journey(*names):
    """Marks a test as a journey of these actions; tests/console/test_actions.py reads it."""
    return lambda test: test


class Console:
    """A running console on a clock that the test moves."""

    def __init__(self, app, pilot, clock):
        self.app, self.pilot, self.clock = app, pilot, clock

    async def pass_time(self, seconds=1.0):
        self.clock.now += seconds
        self.app.tick()
        self.app.tick()
        await self.pilot.pause()

    async def until(self, condition):
        try:
            await until_shown(self.pilot, condition)
        except AssertionError as error:
            raise AssertionError(f"{error} on:\n{self.screen}") from error

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text):
        await self.press(*("space" if c == " " else c for c in text), "enter")

    async def replace(self, text):
        """Type over what stands in the first line of a form, and be done."""
        line = self.app.screen._inputs[0]
        await self.until(lambda: line.has_focus)
        line.value = text
        await self.press("ctrl+s")

    @property
    def screen(self):
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips)

    @property
    def batch(self):
        return self.app.bridge.poll().batch
