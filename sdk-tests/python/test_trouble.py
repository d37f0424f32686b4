"""Servers that throttle, fail, speak TLS or die: what the SDK survives, and what it must tell."""

import threading

import pytest
from azure.core.pipeline.transport import RequestsTransport
from azure.cosmos import CosmosClient, PartitionKey, exceptions

from changefeed_server import KEY
from feed import by_key, drain, events, versions


class Watching(RequestsTransport):
    """The SDK's own transport, which also notes the (status, substatus) of every answer about items, those it tries
    again too."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def send(self, request, **options):
        response = super().send(request, **options)
        if "/docs" in request.url:
            self.seen.append((response.status_code, int(response.headers.get("x-ms-substatus", 0))))
        return response


@pytest.fixture
def watched(container, server):
    """The container through a client that notes what it is answered, with what it needs to know already known."""
    transport = Watching()
    with CosmosClient(server.endpoint, KEY, transport=transport) as client:
        same = client.get_database_client("python").get_container_client(container.id)
        same.upsert_item({"id": "1", "pk": "a", "v": 1})
        same.read_item("1", "a")
        transport.seen.clear()
        same.seen = transport.seen
        yield same


@pytest.fixture(autouse=True)
def no_fault_stays(server):
    yield
    server.fault("--clear")


def test_throttling_is_waited_out(watched, server):
    server.throttle(2, retry_after_ms=400)
    watched.create_item({"id": "2", "pk": "a", "v": 2})
    assert watched.seen[-1] == (201, 0)
    assert 1 <= len(watched.seen[:-1]) <= 6
    assert set(watched.seen[:-1]) == {(429, 3200)}
    watched.seen.clear()
    server.throttle(2, retry_after_ms=400)
    assert versions(drain(watched, start_time="Beginning").items) == [("1", 1), ("2", 2)]
    assert (429, 3200) in watched.seen


def test_throttling_without_end_is_told(watched, server):
    server.throttle(20, retry_after_ms=1)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        watched.create_item({"id": "2", "pk": "a"})
    assert (refused.value.status_code, refused.value.sub_status) == (429, 3200)
    assert watched.seen == [(429, 3200)] * 10
    server.throttle(0)
    assert [item["id"] for item in watched.read_all_items()] == ["1"]


@pytest.mark.parametrize("status,substatus", [(503, 0), (500, 0), (408, 0), (404, 1002), (429, 3200)])
def test_a_read_survives_one_failure(watched, server, status, substatus):
    server.fault("--status", str(status), "--substatus", str(substatus), "--method", "GET", "--path-contains", "docs/1")
    assert watched.read_item("1", "a")["v"] == 1
    assert watched.seen == [(status, substatus), (200, 0)]


@pytest.mark.parametrize("status,substatus", [(410, 1002), (410, 0), (449, 0), (403, 0), (400, 0)])
def test_what_the_sdk_does_not_retry_reaches_the_caller(container, server, status, substatus):
    container.create_item({"id": "1", "pk": "a", "v": 1})
    server.fault("--status", str(status), "--substatus", str(substatus), "--method", "GET", "--path-contains", "docs/1")
    with pytest.raises(exceptions.CosmosHttpResponseError) as failed:
        container.read_item("1", "a")
    assert (failed.value.status_code, failed.value.sub_status or 0) == (status, substatus)
    assert container.read_item("1", "a")["v"] == 1


@pytest.mark.parametrize("status,substatus", [(410, 1002), (410, 1007), (503, 0), (500, 0), (408, 0), (429, 3200)])
@pytest.mark.parametrize("mode", ["LatestVersion", "AllVersionsAndDeletes"])
def test_the_feed_survives_failures_and_loses_nothing(watched, server, mode, status, substatus):
    now = drain(watched, mode=mode).continuation
    for n in range(8):
        watched.create_item({"id": f"n{n}", "pk": f"k{n}", "v": n})
    fault = ["--status", str(status), "--substatus", str(substatus), "--method", "GET", "--path-contains", "/docs"]
    what = versions if mode == "LatestVersion" else events
    watched.seen.clear()
    server.fault(*fault)
    pages = watched.query_items_change_feed(continuation=now, max_item_count=2).by_page()
    came = what(next(pages))
    server.fault(*fault)
    for page in pages:
        came += what(page)
    assert sorted(came) == [
        (f"n{n}", n) if mode == "LatestVersion" else ("create", f"n{n}", n, None) for n in range(8)
    ]
    assert watched.seen.count((status, substatus)) == 2


@pytest.mark.parametrize("status,answers", [(503, [503, 409]), (408, [408])])
def test_a_write_whose_answer_is_lost_is_there_once(watched, server, status, answers):
    """The SDK tries again after a 503 and meets its own first try; after a 408 it leaves that to the caller."""
    now = drain(watched, mode="AllVersionsAndDeletes").continuation
    watched.seen.clear()
    server.fault("--status", str(status), "--after", "--method", "POST", "--path-contains", "/docs")
    with pytest.raises(exceptions.CosmosHttpResponseError) as failed:
        watched.create_item({"id": "2", "pk": "a", "v": 2})
    assert failed.value.status_code == answers[-1]
    assert [answer for answer, _ in watched.seen] == answers
    assert events(drain(watched, continuation=now).items) == [("create", "2", 2, None)]


def test_reads_follow_writes_by_session_token(container):
    written = container.create_item({"id": "1", "pk": "a", "v": 1})
    token = written.get_response_headers()["x-ms-session-token"]
    range_id, rest = token.split(":")
    version, lsn = rest.split("#")[:2]
    assert container.read_item("1", "a", session_token=token)["v"] == 1
    assert int(lsn) == drain(container, start_time="Beginning").items[0]["_lsn"]
    ahead = f"{range_id}:{version}#{int(lsn) + 1000}"
    with pytest.raises(exceptions.CosmosResourceNotFoundError) as missing:
        container.read_item("1", "a", session_token=ahead)
    assert (missing.value.status_code, missing.value.sub_status) == (404, 1002)


def test_a_session_token_outlives_a_split(container, server):
    token = container.create_item({"id": "1", "pk": "a", "v": 1}).get_response_headers()["x-ms-session-token"]
    for one in ("0", "1"):
        server.split(container, one)
    assert container.read_item("1", "a", session_token=token)["v"] == 1
    found = container.query_items("SELECT VALUE c.v FROM c", partition_key="a", session_token=token)
    assert list(found) == [1]


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_tls_with_a_certificate_of_its_own(own_server):
    server = own_server("--tls", "self-signed")
    assert server.endpoint.startswith("https://")
    with CosmosClient(server.endpoint, KEY, connection_verify=False) as client:
        container = client.create_database("tls").create_container("c", PartitionKey(path="/pk"))
        container.create_item({"id": "1", "pk": "a", "v": 1})
        server.split(container, "0")
        server.split(container, "1")
        assert versions(drain(container, start_time="Beginning").items) == [("1", 1)]
    server.stop()


def test_a_killed_server_keeps_every_write_it_acknowledged(own_server):
    """Four writers go on until the server is killed, three times; then items and both feeds tell the same."""
    server = own_server()
    client = CosmosClient(server.endpoint, KEY, retry_total=0, retry_connect=0)
    container = client.create_database("crash").create_container("c", PartitionKey(path="/pk"))
    latest = drain(container, start_time="Beginning").continuation
    full = drain(container, mode="AllVersionsAndDeletes").continuation
    acknowledged, tried, feed_latest, feed_full = {}, {}, [], []
    for life in range(3):
        write_until_killed(server, container, life, acknowledged, tried)
        server.restart()
        reading = drain(container, continuation=latest, max_item_count=7)
        latest, feed_latest = reading.continuation, feed_latest + versions(reading.items)
        reading = drain(container, continuation=full, max_item_count=7)
        full, feed_full = reading.continuation, feed_full + reading.items
    kept = {item["id"]: item["v"] for item in container.read_all_items()}
    assert len(acknowledged) > 50, "the writers had time to write"
    assert acknowledged.items() <= kept.items()
    assert kept.items() <= tried.items(), "nothing is there that nobody wrote"
    assert dict(feed_latest) == kept and len(feed_latest) == len(kept)
    told = by_key(feed_full, events)
    assert sorted(event for key in told.values() for event in key) == sorted(
        ("create", name, value, None) for name, value in kept.items()
    )
    for key, changes in told.items():
        values = [value for _, _, value, _ in changes]
        assert values == sorted(values), f"the writes of {key} keep their order"
    server.stop()


def write_until_killed(server, container, life, acknowledged, tried):
    enough = threading.Barrier(5)

    def write(writer):
        for n in range(100_000):
            name, value = f"{life}-{writer}-{n}", life * 1_000_000 + n
            tried[name] = value
            try:
                container.create_item({"id": name, "pk": f"k{writer}", "v": value}, no_response=True)
            except Exception:  # The server died; what kind of error that makes is not the point here.
                return
            acknowledged[name] = value
            if n == 15:
                enough.wait(timeout=30)

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for writer in writers:
        writer.start()
    enough.wait(timeout=30)
    server.kill()
    for writer in writers:
        writer.join(timeout=60)
        assert not writer.is_alive()


def test_a_server_stopped_in_good_order_goes_on_where_it_was(own_server):
    server = own_server()
    client = CosmosClient(server.endpoint, KEY)
    container = client.create_database("stop").create_container("c", PartitionKey(path="/pk"))
    rid = container.read()["_rid"]
    container.create_item({"id": "1", "pk": "a", "v": 1})
    server.split(container, "1")
    feed = drain(container, start_time="Beginning")
    full = drain(container, mode="AllVersionsAndDeletes").continuation
    server.stop()
    server.restart()
    assert container.read()["_rid"] == rid
    assert [one["id"] for one in server.ranges(container)] == ["0", "2", "3"]
    container.upsert_item({"id": "1", "pk": "a", "v": 2})
    assert versions(drain(container, continuation=feed.continuation).items) == [("1", 2)]
    assert events(drain(container, continuation=full).items) == [("replace", "1", 2, 1)]
    server.stop()
