"""What every test stands on: clients, servers of a test's own, a network that loses replies."""

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import stripe

URL = os.environ["CHARGE_ONCE_URL"]
API_KEY = os.environ["CHARGE_ONCE_API_KEY"]
PROGRAM = os.environ["CHARGE_ONCE"]

# Any wait for a condition ends here, as a failure.
PATIENCE_SECONDS = 30


# The default of the SDK's global settings. StripeClient retries only if it is configured to.
RETRIES = stripe.max_network_retries


def client(url=URL, **options):
    """The SDK as it comes: only the address of the API is another one."""
    options = {"api_key": API_KEY, "max_network_retries": RETRIES, **options}
    return stripe.StripeClient(base_addresses={"api": url}, **options)


def unique(what):
    """A key or a reference that no other test uses."""
    return f"{what}-{uuid.uuid4()}"


def order(**parameters):
    """The parameters of a charge, for a customer whose charges can be counted."""
    return {
        "amount": 2000,
        "currency": "usd",
        "source": "tok_visa",
        "customer": unique("customer"),
        **parameters,
    }


# Where customers land after their bank has asked them.
RETURN_URL = "https://shop.example/done?order=6735"


def payment(payment_method, **parameters):
    """The parameters of an intent that is confirmed at once with this card."""
    return {
        "amount": 2000,
        "currency": "usd",
        "payment_method": payment_method,
        "confirm": True,
        "return_url": RETURN_URL,
        **parameters,
    }


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def authenticate(intent, outcome):
    """Answers for the customer's bank, and gives back what the shop is told when the customer lands."""
    redirect = intent.next_action.redirect_to_url
    body = urllib.parse.urlencode({"outcome": outcome}).encode()
    try:
        urllib.request.build_opener(_Stay).open(redirect.url, body)
    except urllib.error.HTTPError as reply:
        with reply:
            assert reply.code == 303, (reply.code, reply.read())
            landed = reply.headers["location"]
    assert landed.startswith(redirect.return_url), landed
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(landed).query))


def charges_of(parameters):
    """The charges that really are there, asked for without the network in between."""
    return client().v1.charges.list({"customer": parameters["customer"]}).data


def headers(charge):
    return charge.last_response.headers


def is_replay(charge):
    return headers(charge).get("idempotent-replayed") == "true"


def is_in_flight(key):
    """Whether a server is working on the request with this key."""
    try:
        found = client().raw_request("get", f"/v1/idempotency-keys/{key}").data
    except stripe.InvalidRequestError:
        return False
    return found["status"] == "in_flight"


def api_key_of_a_new_account():
    """For lists that must hold a test's own objects and no others."""
    command = [PROGRAM, "api-key", "create", "--account", unique("account")]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()[0]


def requires(feature):
    """Whether `feature` must be there: see `run`."""
    return feature in os.environ["SDK_TEST_REQUIRES"].split()


class Server:
    """A server process of a test's own, on the same database; it keeps its port for life."""

    def __init__(self, **variables):
        self.variables = variables
        self.address = "127.0.0.1:0"
        self.start()

    def start(self):
        environment = {**os.environ, "BIND_ADDRESS": self.address, **self.variables}
        self.process = subprocess.Popen(
            [PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
        )
        self.url = self.process.stdout.readline().strip().rpartition(" ")[2]
        self.address = self.url.removeprefix("http://")
        assert ":" in self.address, "the server did not start"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def kill_and_restart(self):
        self.kill()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Network:
    """A TCP proxy in front of a server, which loses what it is told to. `statuses` are those of the
    replies that came through."""

    def __init__(
        self, url=URL, lose_replies=0, lose_requests=0, lose_bodies=0, when_lost=lambda: None
    ):
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.server = (host, int(port))
        self.replies_to_lose = lose_replies
        self.requests_to_lose = lose_requests
        self.bodies_to_lose = lose_bodies
        self.when_lost = when_lost
        self.lost = 0
        self.statuses = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, from_client):
        try:
            from_server = socket.create_connection(self.server)
        except OSError:
            # The server is down, so close the connection too.
            from_client.close()
            return
        ways = [
            (from_client, from_server, self._pass_request),
            (from_server, from_client, self._pass_reply),
        ]
        for way in ways:
            threading.Thread(target=self._forward, args=way, daemon=True).start()

    def _forward(self, source, target, passes):
        try:
            while data := source.recv(65536):
                if not passes(source, target, data):
                    break
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def _pass_request(self, client, server, data):
        if self._loses("requests_to_lose"):
            return False
        if not self._loses("bodies_to_lose"):
            server.sendall(data)
            return True
        # The head arrives, and the server waits for the body until it answers and closes.
        head, end, _ = data.partition(b"\r\n\r\n")
        assert end, "the head is in one piece"
        server.sendall(head + end)
        while client.recv(65536):
            pass
        return False

    def _pass_reply(self, server, client, data):
        if self._loses("replies_to_lose"):
            return False
        if data.startswith(b"HTTP/1.1 "):
            self.statuses.append(int(data[9:12]))
        client.sendall(data)
        return True

    def _loses(self, to_lose):
        with self.lock:
            if getattr(self, to_lose) == 0:
                return False
            setattr(self, to_lose, getattr(self, to_lose) - 1)
            self.lost += 1
        # A reply that has arrived here is committed, so the fault happens after the commit.
        self.when_lost()
        return True


def eventually(what, condition):
    """Polls until `condition` gives something, and gives it back."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"never happened: {what}")
