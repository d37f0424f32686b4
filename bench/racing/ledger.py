"""Ledgers: what hosts handled, a line for each batch: microseconds since 1970, then the ids."""

import time
from collections import Counter
from pathlib import Path

# What has not arrived this long after the last write counts as lost: longer than any lease takes to expire here.
PATIENCE = 60


class Ledgers:
    """What several hosts handled together. Read while hosts append: a line counts once it is complete."""

    def __init__(self, *files):
        self.files = {Path(file): 0 for file in files}
        self.count = Counter()
        self.first = {}
        self.batches = 0

    def read(self):
        """Reads what was appended since the last time."""
        for file, offset in self.files.items():
            if not file.exists():
                continue
            with open(file, "rb") as opened:
                opened.seek(offset)
                text = opened.read()
            end = text.rfind(b"\n") + 1
            self.files[file] = offset + end
            for line in text[:end].decode().splitlines():
                micros, *ids = line.split(" ")
                self.batches += 1
                self.count.update(ids)
                for found in ids:
                    self.first.setdefault(found, int(micros))
        return self

    def has(self, ids):
        return all(one in self.count for one in ids)

    def compare(self, written):
        """How many ids were lost, and how often one came again. Waits for those that are on their way."""
        end = time.monotonic() + PATIENCE
        while not self.read().has(written) and time.monotonic() < end:
            time.sleep(0.2)
        lost = sum(1 for one in written if one not in self.count)
        unknown = len(self.count) + lost - len(written)
        if unknown:
            raise RuntimeError(f"the ledgers have {unknown} ids that nobody wrote")
        return lost, sum(self.count.values()) - len(self.count)
