"""A host that handles leases as the change feed processor of the .NET SDK does, as far as other hosts can see it.

Written from a description of that SDK, not with it: whole documents are written back with the members that its lease class
has, under the etag of the copy at hand, which is not refreshed after a write; `properties` are copied when a lease is
acquired; owners are judged by `timestamp`; at most one lease is stolen in a cycle, and none while leases are free. Where a
range was split or merged it creates leases for the new ranges at the position that it has read to, acquires them, and deletes
the old one without a condition. Its copy of a lease that it has created has no etag, so it acquires that and writes its
checkpoints without a condition, whoever owns it by then.

Usage: host.py ENDPOINT INSTANCE LEDGER [now]. Works on shop/orders with leases in shop/leases for the processor `fleet`. Creates
the leases unless `.info` says that this was done, without continuations. Such a lease is read from the beginning, or with `now`
from one second before the start of this process, as the SDK does by default. Appends `id LSN instance` to the ledger for each change. Says on stdout what it does; ends in good
order on SIGTERM. After SIGUSR1 it stops itself (SIGSTOP) before its next checkpoint, after SIGUSR2 before it next acquires
leases that it has created: SIGCONT lets it go on there.
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import json
import os
import signal
import sys
import time
import urllib.parse

KEY = base64.b64decode("C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==")
ORDERS = "dbs/shop/colls/orders"
LEASES = "dbs/shop/colls/leases"
PROCESSOR = "fleet"

# Seconds, as our hosts have them against a server. The defaults of the SDK are 13, 17 and 60.
ACQUIRE, RENEW, EXPIRATION, POLL = 2.0, 3.0, 10.0, 0.1
PAGE = 25
# How often a write is tried when the document has changed meanwhile.
ATTEMPTS = 6
# The members of the SDK's lease classes; others do not survive a write.
MEMBERS = ["id", "partitionKey", "version", "_etag", "LeaseToken", "PartitionId", "FeedRange", "Owner",
           "ContinuationToken", "properties", "timestamp", "_ts", "Mode"]


class LeaseLost(Exception):
    """Another host owns the lease, or nobody, or it is not there any more."""


class ServiceError(Exception):
    """A status that ends the work on a lease."""


class RangeGone(Exception):
    """410 with one of the substatuses for a range that was split or merged."""


class Client:
    """Requests of the REST API, one after the other on one connection."""

    def __init__(self, endpoint):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc, timeout=30)

    def request(self, verb, kind, link, path, headers=None, body=None):
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        text = f"{verb.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        signature = base64.b64encode(hmac.new(KEY, text.encode(), hashlib.sha256).digest()).decode()
        signed = {
            "authorization": urllib.parse.quote(f"type=master&ver=1.0&sig={signature}", safe=""),
            "x-ms-date": date,
            "x-ms-version": "2018-12-31",
        }
        payload = None if body is None else json.dumps(body)
        sent = verb, "/" + urllib.parse.quote(path, safe="/="), payload, signed | (headers or {})
        try:
            answer, content = self.exchange(*sent)
        except (http.client.HTTPException, ConnectionError):
            # The server closes connections that were idle for long, as they are while this process is stopped.
            self.connection.close()
            answer, content = self.exchange(*sent)
        parsed = json.loads(content) if content and answer.status != 304 else None
        return answer.status, answer.headers, parsed

    def exchange(self, *sent):
        self.connection.request(*sent)
        answer = self.connection.getresponse()
        return answer, answer.read()

    def get(self, kind, link, path):
        status, _, body = self.request("GET", kind, link, path)
        if status != 200:
            raise ServiceError(f"GET {path}: {status} {body}")
        return body


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def iso(moment):
    """With the seven digits that .NET writes."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z"


def parse_iso(text):
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return moment + datetime.timedelta(seconds=float("0." + (fraction or "0")))


def lease_class(document):
    """A document as the SDK's class of its version holds it."""
    lease = {name: document[name] for name in MEMBERS if name in document}
    lease.setdefault("LeaseToken", lease.get("PartitionId"))
    lease["properties"] = lease.get("properties") or {}
    if lease.get("version") == 1:
        lease.pop("PartitionId", None)
    return lease


def is_expired(lease):
    written = parse_iso(lease["timestamp"]) if lease.get("timestamp") else None
    if written is None:
        written = datetime.datetime.fromtimestamp(lease["_ts"], datetime.timezone.utc)
    return not (lease["Owner"] or "").strip() or written + datetime.timedelta(seconds=EXPIRATION) < now()


class Host:
    def __init__(self, endpoint, name, ledger, start="beginning"):
        # Kept in memory only, and in whole seconds: a process that starts later begins later.
        self.begin = now() - datetime.timedelta(seconds=1) if start == "now" else None
        self.client = Client(endpoint)
        self.name = name
        self.ledger = open(ledger, "a", encoding="utf-8")
        self.owned = {}  # token: the copy at hand
        self.positions = {}  # token: where it has read to, which is not stored when there was nothing new
        self.renewed = {}  # token: when
        self.routing_map = None
        database = self.client.get("dbs", "dbs/shop", "dbs/shop")
        orders = self.client.get("colls", ORDERS, ORDERS)
        self.prefix = f"{PROCESSOR}localhost_{database['_rid']}_{orders['_rid']}.."
        paths = self.client.get("colls", LEASES, LEASES)["partitionKey"]["paths"]
        if paths not in (["/id"], ["/partitionKey"]):
            raise ServiceError(f"lease containers are not partitioned by {paths}")
        self.by_partition_key = paths == ["/partitionKey"]
        self.stopping = False
        self.freezes = set()
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGUSR1, lambda *_: self.freezes.add("checkpoint"))
        signal.signal(signal.SIGUSR2, lambda *_: self.freezes.add("children"))

    def stop(self, *_):
        self.stopping = True

    def say(self, *words):
        print(*words, flush=True)

    def freeze_before(self, what, token):
        """Stops this process if it was asked to, until it is told to go on."""
        if what in self.freezes:
            self.freezes.remove(what)
            self.say("frozen", token)
            os.kill(os.getpid(), signal.SIGSTOP)
            self.say("thawed", token)

    # Documents.

    def document(self, verb, lease, headers=None, body=None):
        """One document of the lease container."""
        link = f"{LEASES}/docs/{lease['id']}"
        value = lease["partitionKey"] if self.by_partition_key else lease["id"]
        key = {"x-ms-documentdb-partitionkey": json.dumps([value])}
        return self.client.request(verb, "docs", link, link, key | (headers or {}), body)

    def update(self, lease, mutate):
        for _ in range(ATTEMPTS):
            lease = mutate(lease)
            lease["timestamp"] = iso(now())
            headers = {"content-type": "application/json"}
            if lease["_etag"]:
                headers["if-match"] = lease["_etag"]
            status, _, body = self.document("PUT", lease, headers, lease)
            if status == 200:
                # The answer's etag is not taken over: the next write finds its copy stale.
                return lease
            if status == 412:
                lease = self.read(lease)
            elif status in (404, 409):
                raise LeaseLost("nobody: it is gone")
            else:
                raise ServiceError(f"update: {status} {body}")
        raise LeaseLost("others, who keep changing it")

    def read(self, lease):
        status, _, body = self.document("GET", lease)
        if status == 404:
            raise LeaseLost("nobody: it is gone")
        if status != 200:
            raise ServiceError(f"read: {status} {body}")
        return lease_class(body)

    def owned_by(self, owner, **members):
        def mutate(lease):
            if lease["Owner"] != owner:
                raise LeaseLost(lease["Owner"] or "nobody")
            return lease | members

        return mutate

    def acquire(self, lease):
        token, of = lease["LeaseToken"], lease["Owner"]
        change = self.owned_by(of, Owner=self.name, properties=dict(lease["properties"]))
        try:
            self.owned[token] = self.update(lease, change)
        except LeaseLost:
            return self.give_up(lease)
        self.positions[token] = self.owned[token]["ContinuationToken"]
        self.renewed[token] = time.monotonic() - RENEW / 2
        self.say("acquired", token, "of", of or "nobody")

    def lose(self, token, to):
        self.owned.pop(token, None)
        self.say("lost", token, "to", to)

    def renew(self, token):
        if time.monotonic() - self.renewed[token] < RENEW:
            return
        self.renewed[token] = time.monotonic()
        try:
            copy = self.read(self.owned[token])
        except LeaseLost:
            return  # A lease that is gone is noticed at the next checkpoint.
        # The copy that the next checkpoint starts from stays as it is.
        self.update(copy, self.owned_by(self.name))
        self.say("renewed", token)

    def give_up(self, lease):
        """Releases a lease if it is still in this host's name."""
        try:
            self.update(self.read(lease), self.owned_by(self.name, Owner=None))
        except LeaseLost:
            pass

    def release(self, token):
        self.give_up(self.owned.pop(token))
        self.say("released", token)

    # The first start.

    def bootstrap(self):
        """Creates a lease for each range that has none, under the lock, unless another host has done it."""
        info, lock = ({"id": self.prefix.removesuffix("..") + suffix} for suffix in (".info", ".lock"))
        if self.by_partition_key:
            info["partitionKey"], lock["partitionKey"] = info["id"], lock["id"]
        while self.document("GET", info)[0] != 200:
            if not self.create(lock | {"ttl": 30}):
                time.sleep(POLL)
                continue
            parts = self.overlapping({"min": "", "max": "FF"})
            tokens = {lease["LeaseToken"] for lease in self.leases()}
            for part in parts:
                if part["id"] not in tokens:
                    self.create(self.new_lease(0, part["id"], part["minInclusive"], part["maxExclusive"], None))
            self.create(info)
            self.document("DELETE", lock)
            self.say("bootstrapped", len(parts))

    # Balancing.

    def leases(self):
        query = {"query": "SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)",
                 "parameters": [{"name": "@prefix", "value": self.prefix}]}
        headers = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "true",
                   "x-ms-documentdb-query-enablecrosspartition": "true"}
        status, _, body = self.client.request("POST", "docs", LEASES, LEASES + "/docs", headers, query)
        if status != 200:
            raise ServiceError(f"list: {status} {body}")
        return [lease_class(document) for document in body["Documents"]]

    def chosen(self, leases):
        expired = [lease for lease in leases if is_expired(lease)]
        counts = {self.name: 0}
        for lease in leases:
            if lease not in expired:
                counts[lease["Owner"]] = counts.get(lease["Owner"], 0) + 1
        target = -(-len(leases) // len(counts)) if len(leases) > len(counts) else 1
        need = target - counts[self.name]
        if need <= 0:
            return []
        if expired:
            return expired[:need]
        victim = max((owner for owner in counts if owner != self.name), key=lambda owner: counts[owner], default=None)
        if victim is None or counts[victim] <= target - (1 if need > 1 else 0):
            return []
        return [lease for lease in leases if lease["Owner"] == victim][:1]

    def balance(self):
        leases = self.leases()
        if len({lease["LeaseToken"] for lease in leases}) < len(leases):
            return self.say("failed", "two leases have one token")
        for lease in self.chosen(leases):
            token = lease["LeaseToken"]
            if token not in self.owned:
                self.acquire(lease)
                continue
            # Its own, expired: only the properties are written.
            try:
                self.update(lease, self.owned_by(self.name, properties=dict(lease["properties"])))
            except LeaseLost:
                pass

    # The feed.

    def overlapping(self, bounds, refresh=False):
        """The physical ranges that have keys of these bounds, by the routing map that is kept."""
        if refresh or self.routing_map is None:
            self.routing_map = self.client.get("pkranges", ORDERS, ORDERS + "/pkranges")["PartitionKeyRanges"]
        return [part for part in self.routing_map
                if part["minInclusive"] < bounds["max"] and bounds["min"] < part["maxExclusive"]]

    def scope(self, lease):
        """The headers that say what is read: a physical range, or for version 1 the part of one."""
        if lease.get("version") != 1:
            return {"x-ms-documentdb-partitionkeyrangeid": lease["LeaseToken"]}
        bounds = lease["FeedRange"]["Range"]
        parts = self.overlapping(bounds)
        if len(parts) > 1:
            raise RangeGone
        headers = {"x-ms-documentdb-partitionkeyrangeid": parts[0]["id"]}
        if bounds != {"min": parts[0]["minInclusive"], "max": parts[0]["maxExclusive"]}:
            headers |= {"x-ms-read-key-type": "EffectivePartitionKeyRange", "x-ms-end-epk": bounds["max"]}
            if bounds["min"]:
                headers["x-ms-start-epk"] = bounds["min"]
        return headers

    def page(self, token):
        headers = self.scope(self.owned[token]) | {"a-im": "Incremental Feed", "x-ms-max-item-count": str(PAGE)}
        if self.positions[token]:
            headers["if-none-match"] = self.positions[token]
        elif self.begin:
            headers["if-modified-since"] = self.begin.strftime("%a, %d %b %Y %H:%M:%S GMT")
        status, answered, body = self.client.request("GET", "docs", ORDERS, ORDERS + "/docs", headers)
        if status == 410 and answered["x-ms-substatus"] in ("1002", "1007"):
            raise RangeGone
        if status not in (200, 304):
            raise ServiceError(f"feed of {token}: {status} {body}")
        self.positions[token] = answered["etag"]
        return body["Documents"] if status == 200 else []

    def work(self, token):
        """One page. Returns whether there may be more."""
        try:
            changes = self.page(token)
        except RangeGone:
            self.replace(token)
            return False
        if not changes:
            return False
        for change in changes:
            self.ledger.write(f"{change['id']} {change['_lsn']} {self.name}\n")
        self.ledger.flush()
        self.freeze_before("checkpoint", token)
        change = self.owned_by(self.name, ContinuationToken=self.positions[token])
        self.owned[token] = self.update(self.owned[token], change)
        return True

    # Splits and merges.

    def new_lease(self, version, token, low, high, continuation):
        lease = {"id": self.prefix + token, "version": version, "_etag": None, "LeaseToken": token,
                 "FeedRange": {"Range": {"min": low, "max": high}}, "Owner": None, "ContinuationToken": continuation,
                 "properties": {}, "timestamp": None, "_ts": 0, "Mode": "Incremental Feed"}
        if self.by_partition_key:
            lease["partitionKey"] = lease["id"]
        return lease

    def child(self, lease, version, token, low, high):
        return self.new_lease(version, token, low, high, self.positions[lease["LeaseToken"]])

    def children(self, lease):
        """What follows a lease, and the word for it; nothing, if it goes on."""
        own = lease["FeedRange"]["Range"]
        parts = self.overlapping(own, refresh=True)
        if lease.get("version") == 1:
            if len(parts) == 1:
                return "redirected", []
            cuts = [(max(part["minInclusive"], own["min"]), min(part["maxExclusive"], own["max"])) for part in parts]
            return "split", [self.child(lease, 1, f"{low}-{high}", low, high) for low, high in cuts]
        if len(parts) == 1:
            return "merged", [self.child(lease, 1, f"{own['min']}-{own['max']}", own["min"], own["max"])]
        return "split", [self.child(lease, 0, part["id"], part["minInclusive"], part["maxExclusive"]) for part in parts]

    def create(self, child):
        """Returns whether it was not there yet."""
        headers = {"content-type": "application/json"}
        headers["x-ms-documentdb-partitionkey"] = json.dumps([child["id"]])
        status, _, body = self.client.request("POST", "docs", LEASES, LEASES + "/docs", headers, child)
        if status not in (201, 409):
            raise ServiceError(f"create {child['id']}: {status} {body}")
        return status == 201

    def replace(self, token):
        """The range of a lease is gone."""
        lease = self.owned[token]
        word, children = self.children(lease)
        created = [child for child in children if self.create(child)]
        if created:
            self.freeze_before("children", token)
        self.owned.pop(token)
        self.say(word, token)
        for child in created:
            self.acquire(child | {"properties": dict(lease["properties"])})
        if children:
            # Whatever the service answers.
            status, _, _ = self.document("DELETE", lease)
            self.say("deleted" if status == 204 else "kept", token)
        self.give_up(lease)

    def run(self):
        self.bootstrap()
        self.say("started")
        next_cycle = time.monotonic()
        while not self.stopping:
            if time.monotonic() >= next_cycle:
                next_cycle = time.monotonic() + ACQUIRE
                self.balance()
            for token in list(self.owned):
                try:
                    self.renew(token)
                    while token in self.owned and not self.stopping and self.work(token):
                        self.renew(token)
                except LeaseLost as lost:
                    self.lose(token, lost)
                except ServiceError as error:
                    self.say("failed", token, error)
                    self.release(token)
            time.sleep(POLL)
        for token in list(self.owned):
            self.release(token)
        self.say("stopped")


Host(*sys.argv[1:]).run()
