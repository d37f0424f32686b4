"""How much the race measures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Lease timing, in milliseconds."""

    acquire: int
    renew: int
    expiration: int

    def settings(self):
        return {"acquire_ms": self.acquire, "renew_ms": self.renew, "expiration_ms": self.expiration}

    def __str__(self):
        return f"acquire {self.acquire / 1000:g} s, renew {self.renew / 1000:g} s, expiration {self.expiration / 1000:g} s"


# What Java's processor has by default, and ours on an account of Azure Cosmos DB.
DEFAULT = Timing(13_000, 17_000, 60_000)
# What ours has by default on a changefeed server.
FAST = Timing(2_000, 3_000, 10_000)
# As FAST, with more cycles of the balancer: one of two hosts may take one lease in a cycle.
BALANCING = Timing(1_000, 3_000, 10_000)
# Nothing but checkpoints happens within a measurement.
RARE = Timing(150_000, 180_000, 600_000)


@dataclass(frozen=True)
class Scale:
    # Items in the feed that a lap reads.
    items: int
    # Laps of Java and of ours before the first that counts.
    warm_up: int
    warm_up_ours: int
    # Laps of each that count.
    laps: int
    # The same with two hosts.
    warm_up_two: int
    laps_two: int
    # Writes whose latency is measured, for each setting and round.
    samples: int
    latency_rounds: int
    # Rounds of what takes as long as the lease timing says.
    slow_rounds: int
    # Seconds for which idle hosts are watched.
    idle_seconds: int
    # Seconds after which a hundred leases that are not balanced count as balanced.
    join_seconds: int


QUICK = Scale(items=200_000, warm_up=5, warm_up_ours=1, laps=3, warm_up_two=1, laps_two=2, samples=200,
              latency_rounds=1, slow_rounds=1, idle_seconds=60, join_seconds=120)
FULL = Scale(items=1_000_000, warm_up=3, warm_up_ours=1, laps=5, warm_up_two=2, laps_two=5, samples=500,
             latency_rounds=3, slow_rounds=3, idle_seconds=300, join_seconds=600)
