"""A `changefeed serve` process, and as much of the REST protocol of Cosmos DB as the race needs."""

import base64
import hashlib
import hmac
import http.client
import json
import re
import subprocess
import threading
import time
import urllib.parse
from email.utils import formatdate

from . import process

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

# Requests that a server answers for this program itself, or that are not made by hosts.
OWN_KINDS = {"metrics", "health", "admin"}


class Server:
    """A server process; `store` is a folder or `memory`."""

    def __init__(self, program, store="memory", cpus=None):
        self.process = subprocess.Popen(
            [*process.pinned_to(cpus), str(program), "serve", "--store", str(store), "--listen", "127.0.0.1:0",
             # Ends with this program, however that ends; hosts do, too.
             "--until-stdin-closes"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server ended at once; its message is above")
        self.endpoint = json.loads(line)["endpoint"]
        self.client = Client(self.endpoint)

    def cpu_seconds(self):
        return process.cpu_seconds(self.process.pid)

    def requests(self):
        """Requests so far, by kind."""
        counts = {}
        for line in self.client.call("GET", "/metrics", None, None)[1].decode().splitlines():
            found = re.match(r'changefeed_server_requests_total\{([^}]*)\} (\S+)', line)
            if found:
                kind = re.search(r'kind="([^"]*)"', found[1])[1]
                if kind not in OWN_KINDS:
                    counts[kind] = counts.get(kind, 0) + int(float(found[2]))
        return counts

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Client:
    """Signed requests over one connection for each thread."""

    def __init__(self, endpoint):
        self.address = urllib.parse.urlsplit(endpoint).netloc
        self.local = threading.local()

    def call(self, method, path, kind, link, body=None, headers=()):
        """Returns status, body and headers. A connection that the server has closed meanwhile is opened again."""
        date = formatdate(usegmt=True)
        sent = {"x-ms-version": "2020-07-15", "x-ms-date": date, **dict(headers)}
        if kind is not None:
            text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
            digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
            sent["authorization"] = urllib.parse.quote(
                f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")
        if body is not None and "content-type" not in sent:
            sent["content-type"] = "application/json"
        for last in (False, True):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = self.local.connection = http.client.HTTPConnection(self.address, timeout=30)
            try:
                connection.request(method, path, body, sent)
                answer = connection.getresponse()
                return answer.status, answer.read(), answer.headers
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if last:
                    raise

    def checked(self, *args, **more):
        status, body, headers = self.call(*args, **more)
        if status >= 300:
            raise RuntimeError(f"{args[0]} {args[1]} was answered with {status}: {body[:300]!r}")
        return body, headers

    def create_database(self, name):
        self.checked("POST", "/dbs", "dbs", "", json.dumps({"id": name}))

    def create_container(self, database, name, key, ranges=1):
        body = {"id": name, "partitionKey": {"paths": [key], "kind": "Hash", "version": 2}}
        # The server gives a container one range for each 10,000 RU/s.
        self.checked("POST", f"/dbs/{database}/colls", "colls", f"dbs/{database}", json.dumps(body),
                     {"x-ms-offer-throughput": str(10_000 * ranges)})

    def create_item(self, database, container, item, key):
        link = f"dbs/{database}/colls/{container}"
        self.checked("POST", f"/{link}/docs", "docs", link, json.dumps(item),
                     {"x-ms-documentdb-partitionkey": json.dumps([key])})

    def items(self, database, container):
        """All items of a container."""
        link, found, more = f"dbs/{database}/colls/{container}", [], None
        while True:
            headers = {"x-ms-max-item-count": "1000", **({"x-ms-continuation": more} if more else {})}
            body, answered = self.checked("GET", f"/{link}/docs", "docs", link, headers=headers)
            found += json.loads(body)["Documents"]
            more = answered.get("x-ms-continuation")
            if not more:
                return found

    def owners(self, database, container):
        """How many leases each host owns; `None` for those without owner."""
        counts = {}
        for lease in self.items(database, container):
            if "LeaseToken" in lease:
                counts[lease.get("Owner")] = counts.get(lease.get("Owner"), 0) + 1
        return counts


def until(what, holds, patience=180, pause=0.02):
    """Waits until `holds` returns something true, and returns it."""
    end = time.monotonic() + patience
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not happen within {patience} s")
        time.sleep(pause)
