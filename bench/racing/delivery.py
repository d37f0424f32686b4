"""How fast a backlog is handled, by one host and by two, what that costs, and how late a change arrives."""

import random
import subprocess
import time
from statistics import median, quantiles

from .course import DATABASE, item
from .host import Host, Peak, until_owned
from .install import say
from .ledger import Ledgers
from .scale import FAST
from .server import Server, until

RANGES = 4

# An idle feed is polled this often while latency is compared at equal settings.
EQUAL_POLL = 100
# The shortest poll delays that help; ours over our own client is woken and keeps its default.
BEST_POLL = {"java": 10, "cosmos": 10, "remote": 60_000}


def race(course):
    store = course.folder / "store"
    load(course, store)
    server = Server(course.programs["changefeed"], store, course.cpus.server)
    hosts = []
    try:
        first = {}
        for contestant in course.contestants:
            first[contestant] = Host(contestant, server, "a", cpus=course.cpus.host(0, 1))
            hosts.append(first[contestant])
        laps_of_one(course, server, first)
        latency(course, server, first)
        laps_of_two(course, server, first, hosts)
        small_heap(course, server, hosts)
    finally:
        for host in hosts:
            host.kill()
        server.stop()


def load(course, store):
    say(f"writing {course.scale.items} items")
    subprocess.run(
        [str(course.programs["changefeed"]), "load", "--store", str(store), "--create", "--container",
         f"{DATABASE}/backlog", "--partition-key", "/customer", "--ranges", str(RANGES), "--count",
         str(course.scale.items), "--keys", "1000", "--size", "256", "--concurrency", "256", "--prefix", "w"],
        check=True, stdout=subprocess.DEVNULL)


def laps_of_one(course, server, hosts):
    """Warm-up, then laps in turns."""
    scale = course.scale
    for contestant, host in hosts.items():
        for number in range(scale.warm_up if contestant.is_java else scale.warm_up_ours):
            found = lap(course, server, [host])
            say(f"warm-up {number + 1} of {contestant.name}: {describe(found, scale.items)}")
    for number in range(scale.laps):
        for contestant, host in hosts.items():
            found = lap(course, server, [host])
            say(f"lap {number + 1} of {contestant.name}: {describe(found, scale.items)}")
            course.note("cpu", contestant, found["cpu"] * 1e6 / scale.items)
            course.note("server_cpu", contestant, found["server_cpu"] * 1e6 / scale.items)
            course.note("rate_one", contestant, scale.items / found["wall"])
            course.note("memory_loaded", contestant, found["memory"] / 2**20)


def laps_of_two(course, server, first, hosts):
    scale = course.scale
    second = {}
    for contestant in first:
        second[contestant] = Host(contestant, server, "b", cpus=course.cpus.host(1, 2))
        hosts.append(second[contestant])
        for _ in range(scale.warm_up if contestant.is_java else scale.warm_up_ours):
            lap(course, server, [second[contestant]])
    for number in range(scale.warm_up_two + scale.laps_two):
        for contestant, host in first.items():
            found = lap(course, server, [host, second[contestant]])
            counts = number >= scale.warm_up_two
            what = f"lap {number - scale.warm_up_two + 1}" if counts else "warm-up"
            say(f"{what} of two hosts of {contestant.name}: {describe(found, scale.items)}")
            if counts:
                course.note("rate_two", contestant, scale.items / found["wall"])


def small_heap(course, server, hosts):
    """Java's memory with a heap that is as small as it may be."""
    host = Host(course.small_java, server, "a", cpus=course.cpus.host(0, 1))
    hosts.append(host)
    found = lap(course, server, [host])
    say(f"lap of {course.small_java.name}: {describe(found, course.scale.items)}")
    course.note("memory_loaded", course.small_java, found["memory"] / 2**20)


def lap(course, server, hosts):
    """Hosts handle the whole backlog, from the moment at which each owns its share of the leases."""
    leases, processor = course.leases(server), course.name("lap")
    ledgers, share = [], RANGES // len(hosts)
    for host in hosts:
        ledgers.append(course.ledger())
        host.start(course.settings(processor, "backlog", leases, ledgers[-1], FAST, poll=1000, gate=1,
                                   most=share if len(hosts) > 1 else 0))
    until_owned(server, DATABASE, leases, {host.instance: share for host in hosts})
    # The first page is read before the gate opens, by all alike.
    time.sleep(0.3)
    begin, cpu, server_cpu = time.monotonic(), sum(host.cpu_seconds() for host in hosts), server.cpu_seconds()
    with Peak(*hosts) as peak:
        for host in hosts:
            host.go()
        until("the whole backlog", lambda: sum(host.seen for host in hosts) >= course.scale.items, pause=0.005)
        cpu = sum(host.cpu_seconds() for host in hosts) - cpu
        server_cpu = server.cpu_seconds() - server_cpu
    wall = max(host.last_seen for host in hosts) - begin
    handled, written = Ledgers(*ledgers), [f"w-{number}" for number in range(course.scale.items)]
    lost, again = handled.compare(written)
    if not again and sum(host.sum for host in hosts) != sum(range(course.scale.items)):
        raise RuntimeError(f"{hosts[0].contestant.name} read other numbers than were written")
    course.note("lost", hosts[0].contestant, lost)
    course.note("duplicates_laps", hosts[0].contestant, again)
    for host in hosts:
        host.stop()
    # Java's processor says that it has stopped before it has released its leases.
    time.sleep(0.5)
    for ledger in ledgers:
        ledger.unlink()
    return {"wall": wall, "cpu": cpu, "server_cpu": server_cpu, "memory": peak.most}


def describe(found, items):
    return (f"{items / found['wall']:,.0f} changes/s, {found['cpu'] * 1e6 / items:.2f} CPU s per million, "
            f"{found['memory'] / 2**20:.0f} MiB")


def latency(course, server, hosts):
    """From sending a write to the delegate call, at equal poll settings and at the best ones of each."""
    for _ in range(course.scale.latency_rounds):
        for setting in ("equal", "best"):
            for contestant, host in hosts.items():
                poll = EQUAL_POLL if setting == "equal" else BEST_POLL[contestant.name]
                millis, cpu = latencies(course, server, host, poll)
                percentiles = quantiles(millis, n=100)
                say(f"latency of {contestant.name}, {setting} settings: p50 {median(millis):.1f} ms, "
                    f"p99 {percentiles[98]:.1f} ms, {cpu:.1%} of a core")
                course.note(f"latency_{setting}_p50", contestant, median(millis))
                course.note(f"latency_{setting}_p99", contestant, percentiles[98])
                course.note(f"latency_{setting}_cpu", contestant, cpu)


def latencies(course, server, host, poll):
    container, leases, ledger = course.container(server), course.leases(server), course.ledger()
    host.start(course.settings(course.name("late"), container, leases, ledger, FAST, poll=poll))
    until_owned(server, DATABASE, leases, {host.instance: RANGES})
    warm, chosen = 40, random.Random(1)
    sent = {}
    begin = cpu = None
    for number in range(warm + course.scale.samples):
        # Writes must not fall into step with the polls.
        time.sleep(chosen.uniform(0.005, 0.045))
        if number == warm:
            begin, cpu = time.monotonic(), host.cpu_seconds()
        written = item(number)
        sent[written["id"]] = time.time_ns() // 1000
        server.client.create_item(DATABASE, container, written, written["customer"])
    share = (host.cpu_seconds() - cpu) / (time.monotonic() - begin)
    handled = Ledgers(ledger)
    lost, again = handled.compare(sent)
    host.stop()
    time.sleep(0.5)
    course.note("lost", host.contestant, lost)
    course.note("duplicates_laps", host.contestant, again)
    counted = [one for one in list(sent)[warm:] if one in handled.first]
    return [(handled.first[one] - sent[one]) / 1000 for one in counted], share
