"""Chat services through apprise: by its documented interface, and with the library where it is
installed."""

from __future__ import annotations

import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from engine.errors import ConfigError
from playbooks.alerts.chat import MISSING, Apprise, body_of
from playbooks.alerts.delivery import NotDelivered
from playbooks.alerts.file import WayToml, load
from playbooks.alerts.keeper import FIRING, RECOVERED, Affected, Message
from playbooks.alerts.ways import way_out
from waiting import CEILING_S


def message(state: str = FIRING, severity: str = "critical", **more) -> Message:
    targets = (Affected("a", 80.0, 1000.0), Affected("b", None, 1000.0, "refused"))
    return Message("id", state, "queue", severity, "queue.waiting above 50", "send less", targets,
                   1010.0)  # fmt: skip


class Library:
    """What of apprise is used: instantiate, notify, NotifyType, and the logger of its name."""

    NotifyType = SimpleNamespace(FAILURE="failure", WARNING="warning", SUCCESS="success")

    def __init__(self, taken: bool = True) -> None:
        self.sent: list[dict] = []
        self.service = SimpleNamespace(service_name="Ding", notify=self.notify)
        self.Apprise = SimpleNamespace(
            instantiate=lambda url: self.service if url.startswith("ding://") else None
        )
        self.taken = taken

    def notify(self, **told) -> bool:
        self.sent.append(told)
        if not self.taken:
            logging.getLogger("apprise").warning("Failed to send: %d", 403)
        return self.taken


@pytest.fixture
def library(monkeypatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "apprise", made)
    return made


def test_a_message_says_what_where_and_what_to_do(library):
    send = Apprise("ding://secret", "CHAT", 3.0)
    send(message(), False)
    (told,) = library.sent
    assert told["title"] == "EveWatch: queue firing" and told["notify_type"] == "failure"
    assert told["body"] == "queue.waiting above 50\na: 80\nb: refused\nsend less"
    assert library.service.socket_read_timeout == library.service.socket_connect_timeout == 3.0


@pytest.mark.parametrize(
    ("state", "severity", "kind"),
    [(FIRING, "critical", "failure"), (FIRING, "warning", "warning"),
     (RECOVERED, "critical", "success")],
)  # fmt: skip
def test_its_kind_is_that_of_the_alert(library, state, severity, kind):
    Apprise("ding://secret", "CHAT", 3.0)(message(state, severity), False)
    assert library.sent[0]["notify_type"] == kind


def test_what_is_sent_again_says_so():
    assert body_of(message(), True).endswith("(sent again: the first may have arrived)")


def test_what_is_not_taken_is_said_and_may_have_arrived(library):
    library.taken = False
    with pytest.raises(NotDelivered, match="not taken: Failed to send: 403") as error:
        Apprise("ding://secret", "CHAT", 3.0)(message(), False)
    assert error.value.unsure


def test_the_name_of_a_way_holds_no_secret(library):
    way = way_out(WayToml("apprise", secret_env="CHAT"), lambda: None, {"CHAT": "ding://secret"})
    assert way.name == "apprise Ding"
    way.put(message())
    assert way.close(CEILING_S) == [] and len(library.sent) == 1


def test_an_address_that_is_not_known_names_its_variable_and_not_itself(library):
    with pytest.raises(ConfigError, match="what CHAT holds") as error:
        Apprise("http:secret", "CHAT", 3.0)
    assert "http:secret" not in str(error.value)


def test_without_the_library_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError) as error:
        Apprise("ding://secret", "CHAT", 3.0)
    assert str(error.value) == MISSING


def test_an_address_in_the_file_is_refused(tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_text('[[ways]]\nkind = "apprise"\nurl = "ding://secret"\n')
    with pytest.raises(ConfigError, match="secret_env: apprise needs the variable"):
        load(path, {})


def test_with_the_library_itself():
    """Its json:// service posts to a server of one's own."""
    pytest.importorskip("apprise")
    got: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if len(got) == 1 else 500)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        send = Apprise(f"json://127.0.0.1:{server.server_port}/x", "CHAT", 5.0)
        send(message(), False)
        assert got[0]["title"] == "EveWatch: queue firing" and "send less" in got[0]["message"]
        with pytest.raises(NotDelivered, match="not taken"):
            send(message(), True)
    finally:
        server.shutdown()
        server.server_close()
