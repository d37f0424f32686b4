"""What all experiments share: contestants, folders, names that were not used before, and results."""

import itertools
import threading
from collections import defaultdict

from .host import Contestant

DATABASE = "race"

# Changes in a delegate call and in a page, at most: the default of ours. Java's, 100, costs it twice as many requests.
PAGE = 1000


class Course:
    def __init__(self, programs, scale, cpus, folder, small_heap):
        self.programs, self.scale, self.cpus, self.folder = programs, scale, cpus, folder
        self.java = Contestant("java", programs)
        self.small_java = Contestant("java-small-heap", programs, small_heap)
        self.remote = Contestant("remote", programs)
        self.cosmos = Contestant("cosmos", programs)
        self.contestants = (self.java, self.remote, self.cosmos)
        # row -> contestant -> values
        self.results = defaultdict(lambda: defaultdict(list))
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def note(self, row, contestant, value):
        with self._lock:
            self.results[row][contestant.name].append(value)

    def name(self, word):
        with self._lock:
            return f"{word}-{next(self._numbers)}"

    def container(self, server, key="/customer", ranges=4, word="items"):
        """A new container; returns its name."""
        name = self.name(word)
        server.client.create_container(DATABASE, name, key, ranges)
        return name

    def leases(self, server):
        return self.container(server, "/id", 1, "leases")

    def ledger(self):
        return self.folder / self.name("ledger")

    def settings(self, processor, container, leases, ledger, timing, *, poll, page=PAGE, most=0, gate=0):
        """The words of a `start` line, the same for all contestants."""
        return {
            "name": processor, "container": f"{DATABASE}/{container}", "leases": f"{DATABASE}/{leases}",
            "ledger": ledger, "max_items": page, "poll_ms": poll, **timing.settings(), "from": "beginning",
            "max_leases": most, "gate": gate, "dialect": "changes",
        }


def item(number, keys=1000):
    """An item of 256 bytes, as `changefeed load` writes them."""
    return {"id": f"w-{number}", "number": number, "customer": f"k{number % keys}", "padding": "x" * 180}
