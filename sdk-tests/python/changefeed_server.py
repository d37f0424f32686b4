"""The server under test, started by the run script or by a test for itself, and the `changefeed` command against it."""

import json
import os
import signal
import subprocess

BINARY = os.environ["CHANGEFEED_BIN"]

# The emulator's public key, which the server takes unless it is told another.
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="


class Server:
    """An endpoint and what an administrator can do to it."""

    def __init__(self, endpoint):
        self.endpoint = endpoint

    def command(self, *arguments):
        done = subprocess.run(
            [BINARY, *arguments], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, f"changefeed {arguments}: {done.stderr}"
        return done.stdout

    def ranges(self, container):
        return json.loads(self._of("ranges", container, "--json"))

    def split(self, container, range_id, at=None):
        """Splits a range and returns its two children."""
        cut = ["--at", at] if at else []
        return json.loads(self._of("split", container, "--range", range_id, *cut, "--json"))

    def merge(self, container, left, right):
        """Merges two neighbours and returns what they became."""
        return json.loads(self._of("merge", container, "--ranges", f"{left},{right}", "--json"))

    def throttle(self, seconds, retry_after_ms=100):
        self.command(
            "throttle", "--store", self.endpoint, "--seconds", str(seconds),
            "--retry-after-ms", str(retry_after_ms),
        )

    def fault(self, *arguments):
        self.command("fault", "--store", self.endpoint, *arguments)

    def _of(self, verb, container, *arguments):
        name = f"{container.container_link.split('/')[1]}/{container.id}"
        return self.command(verb, "--store", self.endpoint, "--container", name, *arguments)


class OwnServer(Server):
    """A server of one test: it may be killed and started again on the same folder and port."""

    def __init__(self, store, *options):
        self.store = store
        self.options = options
        self.process = None
        self.start("127.0.0.1:0")

    def start(self, listen):
        self.process = subprocess.Popen(
            [BINARY, "serve", "--store", str(self.store), "--listen", listen,
             "--ranges", "2", "--previous-images", *self.options],
            stdout=subprocess.PIPE, text=True,
        )
        ready = json.loads(self.process.stdout.readline())
        assert ready["event"] == "ready"
        super().__init__(ready["endpoint"])

    def kill(self):
        """Ends the server as a crash does: nothing is flushed, nobody is told."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(timeout=10) == -signal.SIGKILL

    def restart(self):
        self.start(self.endpoint.split("//")[1].strip("/"))

    def stop(self):
        """Ends the server in good order."""
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0
