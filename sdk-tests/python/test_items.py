"""Items one at a time: statuses, etags, keys of every type, unusual names, size, time to live."""

import json
import time

import pytest
from azure.core import MatchConditions
from azure.cosmos import exceptions
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue

UNUSUAL = [
    "a b", " lead", "é✓", "漢字", "😀", "50%", "%41", "a+b", "a&b=c", "it's", 'say "hi"',
    "semi;colon", "comma,", "(round)", "[square]", "{curly}", "<angle>", "@at", "!bang", "~tilde", "`tick", "^",
    "|pipe", "dot.", "colls", "docs", "AAAAAQ==", "x" * 255,
]


def headers_of(result):
    """The headers of an answer, which must say what the operation cost."""
    headers = result.get_response_headers()
    assert float(headers["x-ms-request-charge"]) > 0
    return headers


def test_a_write_answers_with_the_item_and_its_etag(container):
    item = container.create_item({"id": "1", "pk": "a", "v": 1, "nested": {"list": [1, 2.5, None, True, "é"]}})
    assert headers_of(item)["etag"] == item["_etag"]
    assert item["_etag"].startswith('"') and item["_etag"].endswith('"')
    own = {name: value for name, value in item.items() if not name.startswith("_")}
    assert own == {"id": "1", "pk": "a", "v": 1, "nested": {"list": [1, 2.5, None, True, "é"]}}
    assert set(item) - set(own) == {"_rid", "_self", "_etag", "_attachments", "_ts"}
    assert abs(item["_ts"] - time.time()) < 5
    read = container.read_item("1", "a")
    assert dict(read) == dict(item)
    assert headers_of(read)["etag"] == item["_etag"]


def test_each_write_makes_a_new_etag_and_keeps_the_rid(container):
    seen = [
        container.create_item({"id": "1", "pk": "a", "v": 0}),
        container.upsert_item({"id": "1", "pk": "a", "v": 1}),
        container.replace_item("1", {"id": "1", "pk": "a", "v": 2}),
        container.patch_item("1", "a", [{"op": "incr", "path": "/v", "value": 1}]),
    ]
    assert [item["v"] for item in seen] == [0, 1, 2, 3]
    assert len({item["_etag"] for item in seen}) == 4
    assert len({item["_rid"] for item in seen}) == 1
    container.delete_item("1", "a")
    again = container.create_item({"id": "1", "pk": "a", "v": 4})
    assert again["_rid"] != seen[0]["_rid"]


def test_a_second_create_is_a_conflict_in_the_same_key_only(container):
    container.create_item({"id": "1", "pk": "a"})
    with pytest.raises(exceptions.CosmosResourceExistsError) as refused:
        container.create_item({"id": "1", "pk": "a"})
    assert refused.value.status_code == 409
    container.create_item({"id": "1", "pk": "b"})
    assert sorted(item["pk"] for item in container.read_all_items()) == ["a", "b"]


def test_a_missing_item_is_404_with_substatus_0(container):
    for attempt in (
        lambda: container.read_item("1", "a"),
        lambda: container.delete_item("1", "a"),
        lambda: container.replace_item("1", {"id": "1", "pk": "a"}),
        lambda: container.patch_item("1", "a", [{"op": "set", "path": "/v", "value": 1}]),
    ):
        with pytest.raises(exceptions.CosmosResourceNotFoundError) as missing:
            attempt()
        assert (missing.value.status_code, missing.value.sub_status) == (404, 0)


def test_a_missing_container_is_404_with_the_owner_named(database):
    gone = database.get_container_client("no-such-container")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        gone.read()
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        gone.read_item("1", "a")


def test_a_stale_etag_stops_every_kind_of_write(container):
    old = container.create_item({"id": "1", "pk": "a", "v": 1})["_etag"]
    container.upsert_item({"id": "1", "pk": "a", "v": 2})
    stale = {"etag": old, "match_condition": MatchConditions.IfNotModified}
    for attempt in (
        lambda: container.replace_item("1", {"id": "1", "pk": "a", "v": 3}, **stale),
        lambda: container.upsert_item({"id": "1", "pk": "a", "v": 3}, **stale),
        lambda: container.patch_item("1", "a", [{"op": "set", "path": "/v", "value": 3}], **stale),
        lambda: container.delete_item("1", "a", **stale),
    ):
        with pytest.raises(exceptions.CosmosAccessConditionFailedError) as refused:
            attempt()
        assert refused.value.status_code == 412
    assert container.read_item("1", "a")["v"] == 2


def test_the_present_etag_lets_a_write_through(container):
    item = container.create_item({"id": "1", "pk": "a", "v": 1})
    for value in (2, 3):
        item = container.replace_item(
            "1", {**item, "v": value}, etag=item["_etag"], match_condition=MatchConditions.IfNotModified
        )
    container.delete_item("1", "a", etag=item["_etag"], match_condition=MatchConditions.IfNotModified)
    assert list(container.read_all_items()) == []


def test_an_unchanged_item_is_not_read_again(container):
    item = container.create_item({"id": "1", "pk": "a", "v": 1})
    unchanged = {"etag": item["_etag"], "match_condition": MatchConditions.IfModified}
    assert dict(container.read_item("1", "a", **unchanged)) == {}
    container.upsert_item({"id": "1", "pk": "a", "v": 2})
    assert container.read_item("1", "a", **unchanged)["v"] == 2


def test_no_response_leaves_the_body_out_and_writes_all_the_same(container):
    answer = container.create_item({"id": "1", "pk": "a", "v": 7}, no_response=True)
    assert dict(answer) == {}
    assert answer.get_response_headers()["etag"] == container.read_item("1", "a")["_etag"]


def test_what_a_client_says_of_system_properties_is_discarded(container):
    lie = {"_rid": "AAAA", "_etag": '"mine"', "_ts": 1, "_self": "dbs/x/", "_lsn": 99}
    item = container.create_item({"id": "1", "pk": "a", **lie})
    assert all(item[name] != value for name, value in lie.items() if name != "_lsn")
    assert "_lsn" not in item


def test_an_id_is_made_when_the_sdk_is_asked_to(container):
    item = container.create_item({"pk": "a"}, enable_automatic_id_generation=True)
    assert container.read_item(item["id"], "a")["_rid"] == item["_rid"]


@pytest.mark.parametrize("name", UNUSUAL, ids=lambda name: json.dumps(name)[:20])
def test_unusual_ids_and_keys_are_just_names(container, name):
    created = container.create_item({"id": name, "pk": name, "v": 1})
    assert created["id"] == name
    assert container.read_item(name, name)["_rid"] == created["_rid"]
    assert container.replace_item(name, {"id": name, "pk": name, "v": 2})["v"] == 2
    assert container.patch_item(name, name, [{"op": "incr", "path": "/v", "value": 1}])["v"] == 3
    found = list(container.query_items(
        "SELECT VALUE c.v FROM c WHERE c.id = @id", parameters=[{"name": "@id", "value": name}], partition_key=name
    ))
    assert found == [3]
    feed = list(container.query_items_change_feed(start_time="Beginning", partition_key=name))
    assert [(item["id"], item["v"]) for item in feed] == [(name, 3)]
    container.delete_item(name, name)
    assert list(container.read_all_items()) == []


@pytest.mark.parametrize("name", ["a b", "é+ü", "50%", "it's", "colls", "dbs", "AAAAAQ=="])
def test_unusual_names_of_databases_and_containers(client, server, name):
    database = client.create_database(f"db {name}")
    container = database.create_container(name, {"paths": ["/pk"], "kind": "Hash", "version": 2})
    container.create_item({"id": "1", "pk": "a"})
    reopened = client.get_database_client(f"db {name}").get_container_client(name)
    assert reopened.read_item("1", "a")["id"] == "1"
    assert [item["id"] for item in reopened.query_items_change_feed(start_time="Beginning")] == ["1"]
    assert [range_["id"] for range_ in server.ranges(container)] == ["0", "1"]
    client.delete_database(f"db {name}")
    assert f"db {name}" not in [one["id"] for one in client.list_databases()]


KEYS = [
    ("text", "a", "a"), ("empty", "", ""), ("number", 1.5, 1.5), ("negative", -1, -1), ("large", 2**40, 2**40),
    ("zero", 0, 0), ("true", True, True), ("false", False, False), ("null", None, NullPartitionKeyValue),
    ("long", "k" * 1500, "k" * 1500),
]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("value,key", [case[1:] for case in KEYS], ids=[case[0] for case in KEYS])
def test_a_key_of_any_type_finds_its_item(database, version, value, key):
    container = database.create_container_if_not_exists(
        f"keys-{version}", {"paths": ["/pk"], "kind": "Hash", "version": version}
    )
    name = f"{type(value).__name__}-{str(value)[:20]}"
    container.create_item({"id": name, "pk": value})
    assert container.read_item(name, key)["id"] == name
    found = [item["id"] for item in container.query_items("SELECT * FROM c", partition_key=key)]
    assert found == [name]


@pytest.mark.parametrize("version", [1, 2])
def test_an_item_without_the_key_lives_under_none(database, version):
    container = database.create_container(
        f"without-{version}", {"paths": ["/deep/pk"], "kind": "Hash", "version": version}
    )
    container.create_item({"id": "without"})
    container.create_item({"id": "null", "deep": {"pk": None}})
    assert container.read_item("without", NonePartitionKeyValue)["id"] == "without"
    assert container.read_item("null", NullPartitionKeyValue)["id"] == "null"
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item("null", NonePartitionKeyValue)
    container.delete_item("without", NonePartitionKeyValue)
    assert [item["id"] for item in container.read_all_items()] == ["null"]


def test_a_hierarchical_key_finds_items_by_prefix(new_container):
    container = new_container(["/tenant", "/user", "/session"])
    for tenant in ("T1", "T2"):
        for user in ("U1", "U2"):
            for session in (1, 2):
                container.create_item(
                    {"id": f"{tenant}{user}{session}", "tenant": tenant, "user": user, "session": session}
                )
    assert container.read_item("T1U21", ["T1", "U2", 1])["id"] == "T1U21"
    query = "SELECT VALUE c.id FROM c"
    assert sorted(container.query_items(query, partition_key=["T1"])) == ["T1U11", "T1U12", "T1U21", "T1U22"]
    assert sorted(container.query_items(query, partition_key=["T2", "U1"])) == ["T2U11", "T2U12"]
    assert list(container.query_items(query, partition_key=["T2", "U1", 2])) == ["T2U12"]
    assert list(container.query_items(query, partition_key=["T3"])) == []
    container.patch_item("T1U11", ["T1", "U1", 1], [{"op": "add", "path": "/v", "value": 1}])
    container.delete_item("T1U12", ["T1", "U1", 2])
    left = [item["id"] for item in container.query_items("SELECT * FROM c", partition_key=["T1", "U1"])]
    assert left == ["T1U11"]


MEGABYTE = 1024 * 1024


def test_an_item_just_under_two_megabytes_is_kept(container):
    text = "x" * (2 * MEGABYTE - 1024)
    container.create_item({"id": "1", "pk": "a", "text": text})
    assert container.read_item("1", "a")["text"] == text
    feed = list(container.query_items_change_feed(start_time="Beginning"))
    assert [item["text"] == text for item in feed] == [True]


def test_an_item_over_two_megabytes_is_413_and_not_kept(container):
    text = "x" * (2 * MEGABYTE + 1)
    for attempt in (container.create_item, container.upsert_item):
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            attempt({"id": "1", "pk": "a", "text": text})
        assert refused.value.status_code == 413
    assert list(container.read_all_items()) == []


def test_an_expired_item_is_gone_and_the_full_feed_says_why(new_container):
    container = new_container(default_ttl=-1)
    now = drain_full(container)
    container.create_item({"id": "short", "pk": "a", "ttl": 1})
    container.create_item({"id": "stays", "pk": "a"})
    deadline = time.monotonic() + 15
    while [item["id"] for item in container.read_all_items()] != ["stays"]:
        assert time.monotonic() < deadline, "the item did not expire"
        time.sleep(0.2)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item("short", "a")
    assert list(container.query_items("SELECT VALUE c.id FROM c", enable_cross_partition_query=True)) == ["stays"]
    changes = []
    while len(changes) < 3:
        assert time.monotonic() < deadline, f"the feed does not tell of the expiry: {changes}"
        feed = container.query_items_change_feed(continuation=now)
        changes = [
            (one["metadata"]["operationType"], (one["current"] or one["previous"])["id"],
             one["metadata"]["timeToLiveExpired"])
            for one in feed
        ]
        time.sleep(0.2)
    assert changes == [("create", "short", False), ("create", "stays", False), ("delete", "short", True)]


def drain_full(container):
    assert list(container.query_items_change_feed(mode="AllVersionsAndDeletes")) == []
    return container.client_connection.last_response_headers["etag"]
