"""What the operating system says about a process, and which processors it may use."""

import os

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """User and system time of all threads so far."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name in field 2 may hold anything, so counting begins behind it.
        fields = file.read().rsplit(b") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has no resident memory")


def pinned_to(cpus):
    """What to put before a command so that its process uses these processors only; nothing for `None`."""
    return ["taskset", "--cpu-list", ",".join(str(cpu) for cpu in cpus)] if cpus else []


class Cpus:
    """Where processes run: the server on one half of the processors and hosts on the other, if there are at least four."""

    def __init__(self, cpus=None):
        cpus = sorted(os.sched_getaffinity(0)) if cpus is None else cpus
        self.count = len(cpus)
        half = self.count // 2
        self.server, self._hosts = (cpus[:half], cpus[half:]) if self.count >= 4 else (None, None)

    def host(self, number, hosts):
        """The processors of host `number` of several: each has its own share. `None`: all of them."""
        if not self._hosts:
            return None
        share = len(self._hosts) // hosts
        return self._hosts[number * share:(number + 1) * share]

    def describe(self):
        if not self.server:
            return f"{self.count} CPUs, shared by server and hosts (too few to pin)"
        return f"{self.count} CPUs: the server pinned to {self.server}, hosts to {self._hosts}"
