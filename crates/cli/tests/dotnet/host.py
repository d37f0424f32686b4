"""A host that handles leases as the change feed processor of the .NET SDK does, as far as other hosts can see it.

Written from a description of that SDK, not with it: whole documents are written back with the members that its lease class
has, under the etag of the copy at hand, which is not refreshed after a write; `properties` are copied when a lease is
acquired; owners are judged by `timestamp`; at most one lease is stolen in a cycle, and none while leases are free; a split
creates leases for the new ranges and deletes the old one without a condition.

Usage: host.py ENDPOINT INSTANCE LEDGER. Works on shop/orders with leases in shop/leases for the processor `fleet`, whose
leases must exist. Appends `id LSN instance` to the ledger for each change. Says on stdout what it does; ends in good
order on SIGTERM.
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import json
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
# The members of the SDK's lease class; others do not survive a write.
MEMBERS = ["id", "version", "_etag", "LeaseToken", "PartitionId", "FeedRange", "Owner", "ContinuationToken", "properties",
           "timestamp", "_ts", "Mode"]


class LeaseLost(Exception):
    pass


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
        self.connection.request(verb, "/" + urllib.parse.quote(path, safe="/="), payload, signed | (headers or {}))
        answer = self.connection.getresponse()
        content = answer.read()
        parsed = json.loads(content) if content and answer.status != 304 else None
        return answer.status, answer.headers, parsed

    def get(self, kind, link, path):
        status, _, body = self.request("GET", kind, link, path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body}")
        return body

    def document(self, verb, lease_id, headers=None, body=None):
        """One document of the lease container."""
        link = f"{LEASES}/docs/{lease_id}"
        key = {"x-ms-documentdb-partitionkey": json.dumps([lease_id])}
        return self.request(verb, "docs", link, link, key | (headers or {}), body)


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
    """A document as the SDK's class holds it."""
    lease = {name: document.get(name) for name in MEMBERS if name in document}
    lease.setdefault("LeaseToken", lease.get("PartitionId"))
    return lease


def is_expired(lease):
    written = parse_iso(lease["timestamp"]) if lease.get("timestamp") else None
    if written is None:
        written = datetime.datetime.fromtimestamp(lease["_ts"], datetime.timezone.utc)
    return not (lease["Owner"] or "").strip() or written + datetime.timedelta(seconds=EXPIRATION) < now()


class Host:
    def __init__(self, endpoint, name, ledger):
        self.client = Client(endpoint)
        self.name = name
        self.ledger = open(ledger, "a", encoding="utf-8")
        self.owned = {}  # token: the copy at hand
        self.renewed = {}  # token: when
        database = self.client.get("dbs", "dbs/shop", "dbs/shop")
        orders = self.client.get("colls", ORDERS, ORDERS)
        self.prefix = f"{PROCESSOR}localhost_{database['_rid']}_{orders['_rid']}.."
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        self.stopping = True

    def say(self, *words):
        print(*words, flush=True)

    # Writes.

    def update(self, lease, mutate):
        for _ in range(ATTEMPTS):
            lease = mutate(lease)
            lease["timestamp"] = iso(now())
            status, _, body = self.client.document(
                "PUT", lease["id"], {"if-match": lease["_etag"], "content-type": "application/json"}, lease
            )
            if status == 200:
                # The answer's etag is not taken over: the next write finds its copy stale.
                return lease
            if status == 412:
                lease = self.read(lease["id"])
            elif status in (404, 409):
                raise LeaseLost
            else:
                raise RuntimeError(f"update: {status} {body}")
        raise LeaseLost

    def read(self, lease_id):
        status, _, body = self.client.document("GET", lease_id)
        if status == 404:
            raise LeaseLost
        if status != 200:
            raise RuntimeError(f"read: {status} {body}")
        return lease_class(body)

    def owned_by(self, owner, **members):
        def mutate(lease):
            if lease["Owner"] != owner:
                raise LeaseLost
            return lease | members

        return mutate

    def acquire(self, lease):
        token, of = lease["LeaseToken"], lease["Owner"]
        change = self.owned_by(of, Owner=self.name, properties=dict(lease["properties"] or {}))
        try:
            self.owned[token] = self.update(lease, change)
        except LeaseLost:
            return
        self.renewed[token] = time.monotonic() - RENEW / 2
        self.say("acquired", token, "of", of or "nobody")

    def lose(self, token):
        self.owned.pop(token, None)
        self.say("lost", token)

    def renew(self, token):
        if time.monotonic() - self.renewed[token] < RENEW:
            return
        self.owned[token] = self.update(self.read(self.owned[token]["id"]), self.owned_by(self.name))
        self.renewed[token] = time.monotonic()
        self.say("renewed", token)

    def release(self, token):
        lease = self.owned.pop(token)
        try:
            self.update(self.read(lease["id"]), self.owned_by(self.name, Owner=None))
        except LeaseLost:
            pass
        self.say("released", token)

    # Balancing.

    def leases(self):
        query = {"query": "SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)",
                 "parameters": [{"name": "@prefix", "value": self.prefix}]}
        headers = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "true",
                   "x-ms-documentdb-query-enablecrosspartition": "true"}
        status, _, body = self.client.request("POST", "docs", LEASES, LEASES + "/docs", headers, query)
        if status != 200:
            raise RuntimeError(f"list: {status} {body}")
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
        for lease in self.chosen(self.leases()):
            if lease["LeaseToken"] not in self.owned:
                self.acquire(lease)

    # The feed.

    def work(self, token):
        """One page. Returns whether there may be more."""
        lease = self.owned[token]
        headers = {"a-im": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": token, "x-ms-max-item-count": str(PAGE)}
        if lease["ContinuationToken"]:
            headers["if-none-match"] = lease["ContinuationToken"]
        status, answered, body = self.client.request("GET", "docs", ORDERS, ORDERS + "/docs", headers)
        if status == 304:
            return False
        if status == 410:
            self.split(token)
            return True
        if status != 200:
            raise RuntimeError(f"feed of {token}: {status} {body}")
        for change in body["Documents"]:
            self.ledger.write(f"{change['id']} {change['_lsn']} {self.name}\n")
        self.ledger.flush()
        self.owned[token] = self.update(lease, self.owned_by(self.name, ContinuationToken=answered["etag"]))
        return True

    def split(self, token):
        lease = self.owned.pop(token)
        bounds = lease["FeedRange"]["Range"]
        ranges = self.client.get("pkranges", ORDERS, ORDERS + "/pkranges")["PartitionKeyRanges"]
        parts = [part for part in ranges if part["minInclusive"] < bounds["max"] and bounds["min"] < part["maxExclusive"]]
        if len(parts) < 2:
            raise RuntimeError(f"range {token} is gone and was not split: {parts}")
        children = []
        for part in parts:
            child = lease | {"id": self.prefix + part["id"], "version": 0, "_etag": None, "LeaseToken": part["id"],
                             "Owner": None, "timestamp": None, "_ts": 0,
                             "FeedRange": {"Range": {"min": part["minInclusive"], "max": part["maxExclusive"]}}}
            headers = {"content-type": "application/json", "x-ms-documentdb-partitionkey": json.dumps([child["id"]])}
            status, _, body = self.client.request("POST", "docs", LEASES, LEASES + "/docs", headers, child)
            if status == 201:
                children.append(lease_class(body))
            elif status != 409:
                raise RuntimeError(f"create {child['id']}: {status} {body}")
        self.client.document("DELETE", lease["id"])
        self.say("split", token)
        for child in children:
            self.acquire(child)

    def run(self):
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
                        self.renew(token) if token in self.owned else None
                except LeaseLost:
                    self.lose(token)
            time.sleep(POLL)
        for token in list(self.owned):
            self.release(token)
        self.say("stopped")


Host(*sys.argv[1:]).run()
