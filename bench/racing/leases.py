"""What leases cost and how they move: requests, balancing, takeover, duplicates. Bound by timers, not by processors."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from .course import DATABASE, item
from .host import Host, until_owned
from .install import say
from .ledger import Ledgers
from .scale import BALANCING, DEFAULT, FAST, RARE
from .server import Server, until

IDLE_RANGES = 4
# Poll delays of idle hosts, in milliseconds: the default of each.
IDLE_POLL = {"java": 5_000, "cosmos": 5_000, "remote": 60_000}
MANY_RANGES = 100
# A write after this many seconds is a batch and a checkpoint of its own.
APART = 0.15
CHECKPOINTS = 40
JOIN_CHANGES = 300


def race(course):
    """All contestants at once: each has its own servers, and they mostly wait."""
    with ThreadPoolExecutor() as pool:
        waiting = []
        for contestant in course.contestants:
            waiting.append(pool.submit(idle, course, contestant))
            waiting.append(pool.submit(moves, course, contestant))
        for one in waiting:
            one.result()


def moves(course, contestant):
    checkpoints(course, contestant)
    for _ in range(course.scale.slow_rounds):
        takeover(course, contestant)
        join(course, contestant)


class Servers:
    """A server for items and, if wanted, another for leases, whose requests are then those for leases."""

    def __init__(self, course, apart):
        program = course.programs["changefeed"]
        self.items = Server(program)
        self.leases = Server(program) if apart else self.items
        for server in {self.items, self.leases}:
            server.client.create_database(DATABASE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in {self.items, self.leases}:
            server.stop()


def difference(before, after):
    return {kind: count - before.get(kind, 0) for kind, count in after.items() if count > before.get(kind, 0)}


def idle(course, contestant):
    """What a host asks for and needs that has nothing to do."""
    with Servers(course, True) as servers:
        container, leases = course.container(servers.items, ranges=IDLE_RANGES), course.leases(servers.leases)
        with Host(contestant, servers.items, "a", servers.leases) as host:
            host.start(course.settings("idle", container, leases, course.ledger(), DEFAULT,
                                       poll=IDLE_POLL[contestant.name]))
            until_owned(servers.leases, DATABASE, leases, {"a": IDLE_RANGES})
            # Until it has found out that nothing happens.
            time.sleep(DEFAULT.acquire / 1000)
            feed, lease, cpu = servers.items.requests(), servers.leases.requests(), host.cpu_seconds()
            time.sleep(course.scale.idle_seconds)
            feed, lease = difference(feed, servers.items.requests()), difference(lease, servers.leases.requests())
            minutes = course.scale.idle_seconds / 60
            say(f"idle host of {contestant.name}: for leases {lease}, for the feed {feed}")
            course.note("idle_lease_requests", contestant, sum(lease.values()) / minutes)
            course.note("idle_requests", contestant, (sum(feed.values()) + sum(lease.values())) / minutes)
            course.note("idle_cpu", contestant, (host.cpu_seconds() - cpu) / minutes)
            course.note("memory_idle", contestant, host.resident_bytes() / 2**20)


def checkpoints(course, contestant):
    """Lease requests for each batch, while nothing else needs any."""
    with Servers(course, True) as servers:
        container, leases = course.container(servers.items, ranges=1), course.leases(servers.leases)
        ledger = course.ledger()
        with Host(contestant, servers.items, "a", servers.leases) as host:
            host.start(course.settings("checkpoints", container, leases, ledger, RARE, poll=20))
            until_owned(servers.leases, DATABASE, leases, {"a": 1})
            handled, written = Ledgers(ledger), []

            def write():
                one = item(len(written))
                servers.items.client.create_item(DATABASE, container, one, one["customer"])
                written.append(one["id"])
                until("the item in the ledger", lambda: handled.read().has(written[-1:]))
                time.sleep(APART)

            write()
            before, batches = servers.leases.requests(), handled.batches
            for _ in range(CHECKPOINTS):
                write()
            requests = difference(before, servers.leases.requests())
            batches = handled.batches - batches
            say(f"{batches} checkpoints of {contestant.name}: {requests}")
            course.note("checkpoint_requests", contestant, sum(requests.values()) / batches)
            note_ledgers(course, contestant, handled, written, None)


class Writer:
    """Writes items, each once, until the block ends."""

    def __init__(self, server, container, pause):
        self.server, self.container, self.pause = server, container, pause
        self.written, self.failed = [], None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._write, daemon=True)

    def _write(self):
        try:
            while not self.ended.wait(self.pause):
                one = item(len(self.written))
                self.server.client.create_item(DATABASE, self.container, one, one["customer"])
                self.written.append(one["id"])
        except (OSError, RuntimeError) as error:
            self.failed = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        if self.failed:
            raise RuntimeError("a write failed") from self.failed


def note_ledgers(course, contestant, handled, written, row):
    lost, again = handled.compare(written)
    course.note("lost", contestant, lost)
    if row:
        course.note(row, contestant, again)
    return again


def takeover(course, contestant):
    """From SIGKILL of one of two hosts until what was written in the first second afterwards is handled by the other."""
    with Servers(course, False) as servers:
        server = servers.items
        container, leases = course.container(server), course.leases(server)
        ledgers = [course.ledger(), course.ledger()]
        handled = Ledgers(*ledgers)

        def settings(number):
            return course.settings("takeover", container, leases, ledgers[number], FAST, poll=100)

        with Host(contestant, server, "a") as first, Host(contestant, server, "b") as second:
            first.start(settings(0))
            until_owned(server, DATABASE, leases, {"a": 4})
            second.start(settings(1))
            until_owned(server, DATABASE, leases, {"a": 2, "b": 2})
            with Writer(server, container, 0.02) as writer:
                until("a change at each host", lambda: first.seen and second.seen)
                begin, count = time.monotonic(), len(writer.written)
                second.kill()
                time.sleep(1)
                wanted = writer.written[count:]
                until("the takeover", lambda: handled.read().has(wanted))
                took = time.monotonic() - begin
            again = note_ledgers(course, contestant, handled, writer.written, "duplicates_kill")
            say(f"takeover after SIGKILL of {contestant.name}: {took:.1f} s, {again} of {len(writer.written)} changes twice")
            course.note("takeover", contestant, took)


def join(course, contestant):
    """From the start of a second host until both own fifty of a hundred leases, while items are written."""
    with Servers(course, False) as servers:
        server = servers.items
        container, leases = course.container(server, ranges=MANY_RANGES), course.leases(server)
        ledgers = [course.ledger(), course.ledger()]

        def settings(number):
            return course.settings("join", container, leases, ledgers[number], BALANCING, poll=100)

        # Both processes run before the clock does: how long a JVM takes to start is not the question.
        with Host(contestant, server, "a") as first, Host(contestant, server, "b") as second:
            first.start(settings(0))
            until_owned(server, DATABASE, leases, {"a": MANY_RANGES})
            with Writer(server, container, 0.01) as writer:
                until("a change", lambda: first.seen)
                begin = time.monotonic()
                second.start(settings(1))
                end, even = begin + course.scale.join_seconds, {"a": MANY_RANGES // 2, "b": MANY_RANGES // 2}
                owners = {}
                while owners != even and time.monotonic() < end:
                    time.sleep(0.05)
                    owners = server.client.owners(DATABASE, leases)
                took = time.monotonic() - begin
                # However fast it was, duplicates are looked for among the same number of changes at least.
                until("more changes", lambda: len(writer.written) >= JOIN_CHANGES)
            again = note_ledgers(course, contestant, Ledgers(*ledgers), writer.written, "duplicates_join")
            say(f"100 leases from one host of {contestant.name} to two: {took:.1f} s, at the end {owners}, {again} of "
                f"{len(writer.written)} changes twice")
            course.note("join", contestant, took)
