"""The change feed in both modes: every start, every scope, resuming by continuation, with exactly what arrives."""

import base64
import datetime
import json
import time

import pytest
from azure.cosmos import CosmosClient, exceptions

from changefeed_server import KEY
from feed import by_key, drain, events, versions

KEYS = [f"k{n}" for n in range(10)]
SCOPES = ["container", "first-range", "last-range", "part-of-a-range", "range-of-a-key", "key"]


def scope_of(container, name):
    """The keyword arguments of a scope, and the keys that lie in it."""
    if name == "container":
        return {}, KEYS
    if name == "key":
        return {"partition_key": "k3"}, ["k3"]
    if name == "range-of-a-key":
        return {"feed_range": container.feed_range_from_partition_key("k3")}, ["k3"]
    ranges = list(container.read_feed_ranges())
    feed_range = {
        "first-range": ranges[0], "last-range": ranges[1],
        "part-of-a-range": feed_range_between("08000000000000000000000000000001", "18000000000000000000000000000001"),
    }[name]
    inside = [
        key for key in KEYS
        if container.is_feed_range_subset(feed_range, container.feed_range_from_partition_key(key))
    ]
    assert 0 < len(inside) < len(KEYS), "the scope is a part, and not an empty one"
    return {"feed_range": feed_range}, inside


def feed_range_between(low, high):
    return {"Range": {"min": low, "max": high, "isMinInclusive": True, "isMaxInclusive": False}}


def write(container, round_, keys=KEYS):
    """Writes two items a key and returns what the feed must bring for each of them, in order."""
    expected = {}
    for key in keys:
        for name in ("x", "y"):
            container.upsert_item({"id": f"{key}{name}", "pk": key, "v": round_})
            expected.setdefault(key, []).append((f"{key}{name}", round_))
    return expected


def only(expected, keys):
    return {key: expected[key] for key in keys}


@pytest.mark.parametrize("scope", SCOPES)
def test_from_the_beginning_then_by_continuation(container, scope):
    expected = write(container, 1)
    where, keys = scope_of(container, scope)
    first = drain(container, start_time="Beginning", max_item_count=3, **where)
    assert by_key(first.items, versions) == only(expected, keys)
    assert all(len(page) <= 3 for page in first.pages)
    assert drain(container, continuation=first.continuation).items == []
    expected = write(container, 2)
    second = drain(container, continuation=first.continuation)
    assert by_key(second.items, versions) == only(expected, keys)
    # The old token still means the old place.
    assert by_key(drain(container, continuation=first.continuation).items, versions) == only(expected, keys)


@pytest.mark.parametrize("scope", SCOPES)
def test_from_now_then_by_continuation(container, scope):
    write(container, 1)
    where, keys = scope_of(container, scope)
    now = drain(container, start_time="Now", **where)
    assert now.items == []
    for round_ in (2, 3):
        expected = write(container, round_)
        now = drain(container, continuation=now.continuation, max_item_count=2)
        assert by_key(now.items, versions) == only(expected, keys)


@pytest.mark.parametrize("scope", SCOPES)
def test_from_a_point_in_time_then_by_continuation(container, scope):
    write(container, 1)
    where, keys = scope_of(container, scope)
    time.sleep(1 - time.time() % 1)
    moment = datetime.datetime.now(datetime.timezone.utc)
    expected = write(container, 2)
    feed = drain(container, start_time=moment, max_item_count=3, **where)
    assert by_key(feed.items, versions) == only(expected, keys)
    # A defect of 4.17.1: it writes the start in milliseconds into its token and reads it back as seconds.
    with pytest.raises(ValueError, match="year .* is out of range"):
        drain(container, continuation=feed.continuation)
    expected = write(container, 3)
    again = drain(container, continuation=with_start_in_seconds(feed.continuation))
    assert by_key(again.items, versions) == only(expected, keys)


def with_start_in_seconds(continuation):
    token = json.loads(base64.b64decode(continuation))
    token["startFrom"]["PointInTimeMs"] /= 1000
    return base64.b64encode(json.dumps(token).encode()).decode()


def test_a_point_in_time_before_everything_and_after_everything(container):
    expected = write(container, 1)
    hour = datetime.timedelta(hours=1)
    now = datetime.datetime.now(datetime.timezone.utc)
    assert by_key(drain(container, start_time=now - hour).items, versions) == expected
    assert drain(container, start_time=now + hour).items == []


@pytest.mark.parametrize("scope", SCOPES)
def test_all_versions_and_deletes_from_now_then_by_continuation(container, scope):
    write(container, 1)
    where, keys = scope_of(container, scope)
    now = drain(container, mode="AllVersionsAndDeletes", **where)
    assert now.items == []
    for key in KEYS:
        container.replace_item(f"{key}x", {"id": f"{key}x", "pk": key, "v": 2})
        container.patch_item(f"{key}x", key, [{"op": "incr", "path": "/v", "value": 1}])
        container.delete_item(f"{key}x", key)
        container.create_item({"id": f"{key}x", "pk": key, "v": 4})
        container.upsert_item({"id": f"{key}z", "pk": key, "v": 5})
    feed = drain(container, continuation=now.continuation, max_item_count=3)
    assert by_key(feed.items, events) == {
        key: [
            ("replace", f"{key}x", 2, 1), ("replace", f"{key}x", 3, 2), ("delete", f"{key}x", None, 3),
            ("create", f"{key}x", 4, None), ("create", f"{key}z", 5, None),
        ] for key in keys
    }
    assert drain(container, continuation=feed.continuation).items == []
    assert by_key(drain(container, continuation=now.continuation).items, events) == by_key(feed.items, events)


def test_the_metadata_of_a_full_change(container):
    now = drain(container, mode="AllVersionsAndDeletes").continuation
    created = container.create_item({"id": "1", "pk": "a", "v": 1})
    container.replace_item("1", {"id": "1", "pk": "a", "v": 2})
    container.delete_item("1", "a")
    create, replace, delete = drain(container, continuation=now).items
    lsns = [change["metadata"]["lsn"] for change in (create, replace, delete)]
    assert lsns == sorted(set(lsns))
    assert replace["metadata"]["previousImageLSN"] == lsns[0]
    assert delete["metadata"]["previousImageLSN"] == lsns[1]
    assert delete["current"] == {}
    assert (delete["metadata"]["id"], delete["metadata"]["partitionKey"]) == ("1", {"pk": "a"})
    assert create["current"]["_etag"] == created["_etag"]
    for change in (create, replace, delete):
        assert abs(change["metadata"]["crts"] - time.time()) < 10
        assert change["metadata"]["timeToLiveExpired"] is False


def test_the_latest_mode_shows_only_the_last_version_and_no_deletes(container):
    now = drain(container, start_time="Now").continuation
    for value in range(5):
        container.upsert_item({"id": "1", "pk": "a", "v": value})
        container.upsert_item({"id": "2", "pk": "a", "v": value})
    container.delete_item("2", "a")
    assert versions(drain(container, continuation=now).items) == [("1", 4)]
    assert versions(drain(container, start_time="Beginning").items) == [("1", 4)]


def test_the_order_of_a_key_is_the_order_of_its_writes(container):
    for n in range(20):
        container.upsert_item({"id": f"{n:02}", "pk": "a", "v": n})
    container.upsert_item({"id": "03", "pk": "a", "v": 100})
    expected = [(f"{n:02}", n) for n in range(20) if n != 3] + [("03", 100)]
    assert versions(drain(container, start_time="Beginning", max_item_count=6).items) == expected
    assert versions(drain(container, start_time="Beginning", max_item_count=6, partition_key="a").items) == expected


@pytest.mark.parametrize("scope", ["first-range", "last-range", "key", "container"])
def test_every_page_is_a_place_to_go_on_from(container, scope):
    """Stopping after any page and going on in a new client loses nothing and repeats nothing.

    Of the whole container it holds once each range was read once. Before that 4.17.1 gives out tokens that it refuses
    itself ("Invalid composite token [Missing token]"), a defect of the SDK; so the reading begins at a full token."""
    where, keys = scope_of(container, scope)
    start = drain(container, start_time="Beginning", **where).continuation
    written = write(container, 1)
    expected = sorted(one for key in keys for one in written[key])
    everything = len(drain(container, continuation=start, max_item_count=1).pages)
    assert everything == len(expected)
    for stop_after in range(1, everything + 1):
        pages = container.query_items_change_feed(continuation=start, max_item_count=1).by_page()
        seen = [one for _ in range(stop_after) for one in versions(next(pages))]
        assert len(seen) == stop_after
        token = container.client_connection.last_response_headers["etag"]
        seen += versions(drain(elsewhere(container), continuation=token).items)
        assert sorted(seen) == expected


def elsewhere(container):
    """The same container through a client that knows nothing of it."""
    client = CosmosClient(container.client_connection.url_connection, KEY)
    return client.get_database_client(container.container_link.split("/")[1]).get_container_client(container.id)


def test_a_scope_over_several_ranges_brings_all_that_lies_in_it(container, server):
    """4.17.1 takes the whole of each range that the scope touches where it touches several, a defect of the SDK
    (`handle_feed_range_gone`): more comes than was asked for, never less."""
    expected = write(container, 1)
    for one in ("0", "1"):
        server.split(container, one)
    low, high = "10000000000000000000000000000001", "28000000000000000000000000000001"
    ranges = list(container.read_feed_ranges(force_refresh=True))
    touched = [one for one in ranges if one["Range"]["max"] > low and one["Range"]["min"] < high]
    assert len(touched) == 2
    keys = [
        key for key in KEYS for one in touched
        if container.is_feed_range_subset(one, container.feed_range_from_partition_key(key))
    ]
    assert 0 < len(keys) < len(KEYS)
    feed = drain(container, start_time="Beginning", feed_range=feed_range_between(low, high))
    assert by_key(feed.items, versions) == only(expected, keys)


def test_a_prefix_of_a_hierarchical_key_is_a_scope(new_container):
    container = new_container(["/tenant", "/user"])
    for mode in ({"start_time": "Beginning"}, {"mode": "AllVersionsAndDeletes"}):
        now = drain(container, partition_key=["T1"], **mode).continuation
        round_ = len(mode)
        written = {}
        for tenant in ("T1", "T2"):
            for user in ("U1", "U2", "U3"):
                name = f"{tenant}{user}"
                container.upsert_item({"id": name, "tenant": tenant, "user": user, "v": round_})
                written.setdefault(tenant, []).append(name)
        came = drain(container, continuation=now, max_item_count=2).items
        assert sorted((one.get("current") or one)["id"] for one in came) == written["T1"]
    exact = drain(container, start_time="Beginning", partition_key=["T2", "U2"])
    assert [item["id"] for item in exact.items] == ["T2U2"]


def test_all_versions_begin_only_now(container):
    for start in ("Beginning", datetime.datetime.now(datetime.timezone.utc)):
        with pytest.raises(ValueError):
            container.query_items_change_feed(mode="AllVersionsAndDeletes", start_time=start)


@pytest.mark.filterwarnings("ignore:.*partition_key_range_id.*", "ignore:.*is_start_from_beginning.*")
def test_the_old_option_of_a_range_id_is_refused_rather_than_half_served(container):
    """4.17.1 sends no scope at all for it, a defect of the SDK: with two ranges the server must not pick one."""
    write(container, 1)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        drain(container, partition_key_range_id="0", is_start_from_beginning=True)
    assert refused.value.status_code == 400
