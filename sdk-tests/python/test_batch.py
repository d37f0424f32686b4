"""Transactional batches and patches: all or nothing, exact statuses, one place in the feed."""

import pytest
from azure.core import MatchConditions
from azure.cosmos import exceptions

from feed import drain, events


def statuses(results):
    return [result["statusCode"] for result in results]


def test_a_batch_does_all_kinds_of_operations_in_order(container):
    container.create_item({"id": "old", "pk": "a", "v": 1})
    results = container.execute_item_batch([
        ("create", ({"id": "1", "pk": "a", "v": 1},)),
        ("upsert", ({"id": "2", "pk": "a", "v": 2},)),
        ("upsert", ({"id": "old", "pk": "a", "v": 5},)),
        ("read", ("1",)),
        ("replace", ("1", {"id": "1", "pk": "a", "v": 10})),
        ("patch", ("2", [{"op": "incr", "path": "/v", "value": 3}]), {"filter_predicate": "from c where c.v = 2"}),
        ("delete", ("old",)),
    ], partition_key="a")
    assert statuses(results) == [201, 201, 200, 200, 200, 200, 204]
    assert results[3]["resourceBody"]["v"] == 1
    assert results[4]["eTag"] == container.read_item("1", "a")["_etag"]
    left = sorted((item["id"], item["v"]) for item in container.read_all_items())
    assert left == [("1", 10), ("2", 5)]


@pytest.mark.parametrize("culprit,status", [
    (("create", ({"id": "old", "pk": "a"},)), 409),
    (("replace", ("none", {"id": "none", "pk": "a"})), 404),
    (("delete", ("none",)), 404),
    (("replace", ("old", {"id": "old", "pk": "a"}), {"if_match_etag": '"stale"'}), 412),
    (("patch", ("old", [{"op": "set", "path": "/v", "value": 9}]), {"filter_predicate": "from c where c.v = 2"}), 412),
], ids=["conflict", "replace-missing", "delete-missing", "stale-etag", "condition"])
def test_one_failure_undoes_the_whole_batch(container, culprit, status):
    container.create_item({"id": "old", "pk": "a", "v": 1})
    before = drain(container, start_time="Now").continuation
    with pytest.raises(exceptions.CosmosBatchOperationError) as refused:
        container.execute_item_batch([
            ("create", ({"id": "1", "pk": "a"},)), culprit, ("create", ({"id": "2", "pk": "a"},)),
        ], partition_key="a")
    assert refused.value.error_index == 1
    assert statuses(refused.value.operation_responses) == [424, status, 424]
    assert [(item["id"], item["v"]) for item in container.read_all_items()] == [("old", 1)]
    assert drain(container, continuation=before).items == []


def test_a_batch_takes_a_hundred_operations_and_not_one_more(container):
    creates = [("create", ({"id": f"{n:03}", "pk": "a", "v": n},)) for n in range(101)]
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        container.execute_item_batch(creates, partition_key="a")
    assert refused.value.status_code == 400
    assert list(container.read_all_items()) == []
    results = container.execute_item_batch(creates[:100], partition_key="a")
    assert statuses(results) == [201] * 100
    feed = drain(container, start_time="Beginning", max_item_count=7)
    # A transaction is never cut: the hint of seven gives way.
    assert [[item["v"] for item in page] for page in feed.pages] == [list(range(100))]
    assert len({item["_lsn"] for item in feed.items}) == 1


def test_a_batch_over_two_megabytes_is_413_and_undone(container):
    half = "x" * (1024 * 1024)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        container.execute_item_batch(
            [("create", ({"id": str(n), "pk": "a", "text": half},)) for n in range(3)], partition_key="a"
        )
    assert refused.value.status_code == 413
    assert list(container.read_all_items()) == []


def test_a_batch_of_another_key_is_refused(container):
    with pytest.raises(exceptions.CosmosBatchOperationError) as refused:
        container.execute_item_batch([
            ("create", ({"id": "0", "pk": "a"},)), ("create", ({"id": "1", "pk": "b"},)),
        ], partition_key="a")
    assert statuses(refused.value.operation_responses) == [424, 400]
    assert list(container.read_all_items()) == []


def test_a_batch_is_one_moment_in_the_full_feed(container):
    now = drain(container, mode="AllVersionsAndDeletes").continuation
    container.execute_item_batch([
        ("create", ({"id": "1", "pk": "a", "v": 1},)), ("create", ({"id": "2", "pk": "a", "v": 1},)),
    ], partition_key="a")
    container.execute_item_batch([
        ("replace", ("1", {"id": "1", "pk": "a", "v": 2})), ("delete", ("2",)),
    ], partition_key="a")
    feed = drain(container, continuation=now, max_item_count=1)
    assert events(feed.items) == [
        ("create", "1", 1, None), ("create", "2", 1, None), ("replace", "1", 2, 1), ("delete", "2", None, 1),
    ]
    lsns = [item["metadata"]["lsn"] for item in feed.items]
    assert lsns[0] == lsns[1] < lsns[2] == lsns[3]


def test_patch_knows_every_operation(container):
    container.create_item({"id": "1", "pk": "a", "n": 1, "list": [1, 2, 3], "o": {"x": 1}, "gone": True})
    item = container.patch_item("1", "a", [
        {"op": "add", "path": "/added", "value": {"y": [1]}},
        {"op": "add", "path": "/list/0", "value": 0},
        {"op": "add", "path": "/list/-", "value": 4},
        {"op": "set", "path": "/o/z", "value": None},
        {"op": "replace", "path": "/o/x", "value": 2},
        {"op": "incr", "path": "/n", "value": 1.5},
        {"op": "remove", "path": "/gone"},
        {"op": "move", "from": "/added/y", "path": "/moved"},
    ])
    own = {name: value for name, value in item.items() if not name.startswith("_")}
    assert own == {
        "id": "1", "pk": "a", "n": 2.5, "list": [0, 1, 2, 3, 4], "o": {"x": 2, "z": None}, "added": {}, "moved": [1],
    }


@pytest.mark.parametrize("operation", [
    {"op": "replace", "path": "/missing", "value": 1},
    {"op": "remove", "path": "/missing"},
    {"op": "incr", "path": "/text", "value": 1},
    {"op": "set", "path": "/pk", "value": "b"},
    {"op": "set", "path": "/id", "value": "2"},
    {"op": "wish", "path": "/n", "value": 1},
], ids=lambda operation: f"{operation['op']}-{operation['path'][1:]}")
def test_a_patch_that_cannot_be_done_is_400_and_changes_nothing(container, operation):
    before = container.create_item({"id": "1", "pk": "a", "n": 1, "text": "t"})
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 2}, operation])
    assert refused.value.status_code == 400
    assert container.read_item("1", "a")["_etag"] == before["_etag"]


def test_a_patch_condition_and_an_etag_decide(container):
    item = container.create_item({"id": "1", "pk": "a", "n": 1})
    raise_n = [{"op": "incr", "path": "/n", "value": 1}]
    with pytest.raises(exceptions.CosmosAccessConditionFailedError):
        container.patch_item("1", "a", raise_n, filter_predicate="from c where c.n > 1")
    assert container.patch_item("1", "a", raise_n, filter_predicate="from c where c.n = 1")["n"] == 2
    with pytest.raises(exceptions.CosmosAccessConditionFailedError):
        container.patch_item(
            "1", "a", raise_n, etag=item["_etag"], match_condition=MatchConditions.IfNotModified
        )
    assert container.read_item("1", "a")["n"] == 2
