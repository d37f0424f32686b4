"""The asynchronous client: the same wire from code of its own."""

import asyncio

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient

from changefeed_server import KEY
from feed import Reading, by_key, events, versions

KEYS = [f"k{n}" for n in range(8)]


def run(server, work):
    async def with_container():
        async with CosmosClient(server.endpoint, KEY) as client:
            database = await client.create_database_if_not_exists("python-async")
            container = await database.create_container(work.__name__, PartitionKey(path="/pk"))
            await work(container)

    asyncio.run(with_container())


async def drain(container, **options):
    pages = []
    async for page in container.query_items_change_feed(**options).by_page():
        pages.append([item async for item in page])
    return Reading(pages, container.client_connection.last_response_headers["etag"])


def test_items_and_queries(server):
    async def items_and_queries(container):
        await asyncio.gather(*(container.create_item({"id": key, "pk": key, "v": n}) for n, key in enumerate(KEYS)))
        item = await container.read_item("k3", "k3")
        await container.replace_item("k3", {**item, "v": 30})
        await container.patch_item("k4", "k4", [{"op": "set", "path": "/v", "value": 40}])
        await container.delete_item("k5", "k5")
        with pytest.raises(exceptions.CosmosResourceNotFoundError):
            await container.read_item("k5", "k5")
        done = await container.execute_item_batch(
            [("create", ({"id": "b", "pk": "k0", "v": 50},)), ("read", ("k0",))], partition_key="k0"
        )
        assert [one["statusCode"] for one in done] == [201, 200]
        rows = [row async for row in container.query_items("SELECT VALUE c.v FROM c ORDER BY c.v")]
        assert rows == [0, 1, 2, 6, 7, 30, 40, 50]

    run(server, items_and_queries)


@pytest.mark.parametrize("merged", [False, True], ids=["split", "merge"])
def test_both_feeds_through_a_change_of_ranges(server, merged):
    async def both_feeds(container):
        latest = (await drain(container, start_time="Beginning")).continuation
        full = (await drain(container, mode="AllVersionsAndDeletes")).continuation
        for n, key in enumerate(KEYS):
            await container.create_item({"id": key, "pk": key, "v": n})
        if merged:
            server.merge(container, "0", "1")
        else:
            server.split(container, "0")
            server.split(container, "1")
        for n, key in enumerate(KEYS):
            await container.upsert_item({"id": key, "pk": key, "v": n + 100})
        await container.delete_item("k0", "k0")
        came = (await drain(container, continuation=latest, max_item_count=3)).items
        assert sorted(versions(came)) == [(key, n + 100) for n, key in enumerate(KEYS) if n]
        came = (await drain(container, continuation=full, max_item_count=3)).items
        assert by_key(came, events) == {
            key: [("create", key, n, None), ("replace", key, n + 100, n)] + [("delete", key, None, 100)] * (n == 0)
            for n, key in enumerate(KEYS)
        }

    both_feeds.__name__ += "-merge" if merged else "-split"
    run(server, both_feeds)
