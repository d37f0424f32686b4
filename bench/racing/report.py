"""The rows of the race: names, goals, the table and the JSON."""

import json
from dataclasses import dataclass
from statistics import median
from typing import Callable, Optional

from . import delivery, leases
from .course import PAGE
from .scale import BALANCING, DEFAULT, FAST


@dataclass(frozen=True)
class Goal:
    text: str
    met: Callable[[float, Optional[float]], bool]


def at_most(limit):
    return Goal(f"ratio <= {limit:g}", lambda _, ratio: ratio is not None and ratio <= limit)


FEWER = Goal("ratio < 1", lambda _, ratio: ratio is not None and ratio < 1)
NONE = Goal("ours = 0", lambda ours, _: ours == 0)


@dataclass(frozen=True)
class Row:
    name: str
    # Where the values are among the results.
    result: str
    unit: str
    what: str
    goal: Optional[Goal] = None
    # How several values become one.
    of: Callable = median
    # Whose values stand on Java's side.
    java: str = "java"
    # Whether the chart shows it.
    chart: bool = True
    lower_is_better: bool = True


SHARED = f"pages of {PAGE}, {delivery.RANGES} ranges, {FAST}"

ROWS = (
    Row("cpu_seconds_per_million_changes", "cpu", "s", f"CPU time of the host process, one host, backlog, {SHARED}",
        at_most(0.1)),
    Row("server_cpu_seconds_per_million_changes", "server_cpu", "s",
        "CPU time of the server process in the same laps", chart=False),
    Row("changes_per_second_one_host", "rate_one", "changes/s", f"one host, backlog, {SHARED}", lower_is_better=False),
    Row("changes_per_second_two_hosts", "rate_two", "changes/s",
        f"two hosts with half of the leases each, backlog, {SHARED}", lower_is_better=False),
    Row("memory_loaded", "memory_loaded", "MiB", "most resident memory of the host during these laps", at_most(0.1)),
    Row("memory_loaded_small_heap", "memory_loaded", "MiB", "the same, Java with the flags of a small heap",
        at_most(0.1), java="java-small-heap"),
    Row("memory_idle", "memory_idle", "MiB", f"resident memory of an idle host, {leases.IDLE_RANGES} leases",
        at_most(0.1)),
    Row("latency_equal_poll_p50", "latency_equal_p50", "ms",
        f"from sending a write to the delegate call, poll delay {delivery.EQUAL_POLL} ms for all"),
    Row("latency_equal_poll_p99", "latency_equal_p99", "ms", "the same"),
    Row("latency_best_p50", "latency_best_p50", "ms",
        f"the same, poll delay {delivery.BEST_POLL['java']} ms (Java, SDK for Rust) or pushed wake-ups (our client)"),
    Row("latency_best_p99", "latency_best_p99", "ms", "the same"),
    Row("latency_best_cpu", "latency_best_cpu", "cores", "CPU time of the host per second meanwhile, 40 writes/s",
        chart=False),
    Row("lease_requests_per_checkpoint", "checkpoint_requests", "requests",
        "requests to the lease container for each batch, nothing else under way", FEWER),
    Row("lease_requests_per_idle_minute", "idle_lease_requests", "requests",
        f"requests to the lease container, idle host, {leases.IDLE_RANGES} leases, {DEFAULT}", FEWER),
    Row("requests_per_idle_minute", "idle_requests", "requests", "the same and the feed's, poll delays as by default: 5 s, our client 60 s since it is woken", FEWER),
    Row("idle_cpu_seconds_per_minute", "idle_cpu", "s", "CPU time of that host", chart=False),
    Row("balance_100_ranges_1_to_2_hosts", "join", "s",
        f"from the start of the second processor to 50 and 50 leases, or until 120 s (--quick) or 600 s, {BALANCING}"),
    Row("takeover_after_kill", "takeover", "s",
        f"from SIGKILL of one of two hosts until what was written in the next second is handled, {FAST}"),
    Row("duplicates_join", "duplicates_join", "changes", "changes that came twice while the second host joined", of=sum,
        chart=False),
    Row("duplicates_kill", "duplicates_kill", "changes", "changes that came twice around the SIGKILL", of=sum,
        chart=False),
    Row("lost", "lost", "changes", "changes of all experiments that are in no ledger", NONE, of=sum, chart=False),
)

COSMOS = "_cosmos"
STORES = (("remote", "", "changefeed-remote"), ("cosmos", COSMOS, "changefeed-cosmos on the official SDK for Rust"))


def lines(results, machine):
    """The rows of the JSON: those of our client for our server, with the verdict on the SDK's beside it, then those of
    the SDK's."""
    found = []
    for contestant, suffix, store in STORES:
        for row in ROWS:
            ours, java = results[row.result][contestant], results[row.result][row.java]
            if not ours or not java:
                raise RuntimeError(f"nothing was measured for {row.name}")
            value, other = row.of(ours), row.of(java)
            ratio = value / other if other else None
            found.append({
                "row": row.name + suffix, "ours": rounded(value), "java": rounded(other), "ratio": rounded(ratio),
                "goal": row.goal.text if row.goal else None,
                "met": row.goal.met(value, ratio) if row.goal else None,
                "unit": row.unit, "store": store, "what": row.what, "runs_ours": [rounded(one) for one in ours],
                "runs_java": [rounded(one) for one in java], "machine": machine,
            })
    by_name = {one["row"]: one for one in found}
    for row in ROWS:
        cosmos = by_name[row.name + COSMOS]
        by_name[row.name].update({f"{key}_cosmos": cosmos[key] for key in ("ours", "ratio", "met")})
    return found


def rounded(value):
    return None if value is None else float(f"{value:.4g}")


def show(value):
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(found):
    """One line for each row, with both stores of ours and the verdict on each."""
    head = ("row", "unit", "remote", "cosmos", "java", "ratio", "ratio cosmos", "goal", "met", "met cosmos")
    rows = [one for one in found if "ours_cosmos" in one]
    verdict = {True: "yes", False: "NO", None: ""}
    body = [(one["row"], one["unit"], show(one["ours"]), show(one["ours_cosmos"]), show(one["java"]), show(one["ratio"]),
             show(one["ratio_cosmos"]), one["goal"] or "", verdict[one["met"]], verdict[one["met_cosmos"]]) for one in rows]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        for line in (head, tuple("-" * width for width in widths), *body))


def write(path, found):
    path.write_text("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in found) + "\n]\n", encoding="utf-8")
