"""A host process: Java's or ours. Both understand the same lines on stdin."""

import queue
import subprocess
import threading
import time

from . import process
from .server import until

# Hosts are given this long to do what a line asks for.
PATIENCE = 120

JAVA_PROPERTIES = [
    # The server of the race speaks plain HTTP.
    "-DCOSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED=true",
    # No request to the metadata service of a virtual machine.
    "-DCOSMOS.DISABLE_IMDS_ACCESS=true",
]


class Contestant:
    """How to start hosts of one kind."""

    def __init__(self, name, programs, flags=()):
        self.name, self.programs, self.flags = name, programs, tuple(flags)

    @property
    def is_java(self):
        return self.name.startswith("java")

    def command(self, endpoint, lease_endpoint, instance):
        if self.is_java:
            return ["java", *self.flags, *JAVA_PROPERTIES, "-cp", self.programs["classes"], "changefeed.RaceHost",
                    endpoint, lease_endpoint, instance]
        return [str(self.programs["host"]), self.name, endpoint, lease_endpoint, instance]


class Host:
    """A process; killed when its `with` block ends."""

    def __init__(self, contestant, server, instance, lease_server=None, cpus=None):
        self.contestant, self.instance = contestant, instance
        lease_endpoint = (lease_server or server).endpoint
        self.process = subprocess.Popen(
            [*process.pinned_to(cpus), *contestant.command(server.endpoint, lease_endpoint, instance)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.words = queue.Queue()
        self.seen = 0
        self.sum = 0
        self.last_seen = 0.0
        threading.Thread(target=self._listen, daemon=True).start()
        self._expect("ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def _listen(self):
        for line in self.process.stdout:
            words = line.split()
            if words and words[0] == "seen":
                self.last_seen = time.monotonic()
                self.sum = int(words[2])
                self.seen = int(words[1])
            else:
                self.words.put(line.strip())
        self.words.put("ended")

    def _expect(self, word):
        try:
            said = self.words.get(timeout=PATIENCE)
        except queue.Empty:
            raise RuntimeError(f"{self.contestant.name} did not say {word} within {PATIENCE} s") from None
        if said != word:
            raise RuntimeError(f"{self.contestant.name} said {said} instead of {word}; its messages are above")

    def _tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def start(self, settings):
        """Starts a processor. Returns once the host says that it runs; its leases may come later."""
        self.seen = self.sum = 0
        self._tell("start " + " ".join(f"{name}={value}" for name, value in settings.items()))
        self._expect("started")

    def go(self):
        self._tell("go")

    def stop(self):
        self._tell("stop")
        self._expect("stopped")

    def kill(self):
        """By SIGKILL. Afterwards its ledger is complete."""
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self):
        return process.cpu_seconds(self.pid)

    def resident_bytes(self):
        return process.resident_bytes(self.pid)


def until_owned(server, database, leases, wanted, patience=180):
    """Waits until exactly these hosts own these numbers of leases."""
    return until(f"{wanted} leases", lambda: server.client.owners(database, leases) == wanted, patience, 0.05)


class Peak:
    """The most memory that a process had while the block ran, looked at every 20 ms."""

    def __init__(self, *hosts):
        self.hosts, self.most = hosts, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self.ended.wait(0.02):
            self.most = max(self.most, *(host.resident_bytes() for host in self.hosts))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
