"""The SDK's own first steps, as its documentation shows them, with what they must bring."""

import pytest
from azure.cosmos import CosmosClient, PartitionKey, ThroughputProperties, exceptions

from changefeed_server import KEY


@pytest.fixture
def products(database):
    container = database.create_container(
        id="products", partition_key=PartitionKey(path="/productName"), offer_throughput=400
    )
    for n in range(1, 10):
        container.upsert_item({"id": f"item{n}", "productName": "Widget", "productModel": f"Model {n}"})
    yield container
    database.delete_container("products")


def test_create_a_database_and_meet_it_again(client):
    database = client.create_database(id="first")
    with pytest.raises(exceptions.CosmosResourceExistsError):
        client.create_database(id="first")
    assert client.create_database_if_not_exists(id="first").read()["_rid"] == database.read()["_rid"]
    assert "first" in [one["id"] for one in client.list_databases()]
    found = list(client.query_databases(
        "SELECT * FROM root r WHERE r.id = @id", parameters=[{"name": "@id", "value": "first"}]
    ))
    assert [one["id"] for one in found] == ["first"]
    client.delete_database("first")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        client.get_database_client("first").read()


def test_create_a_container_and_change_it(database):
    made = database.create_container_if_not_exists(
        id="changed", partition_key=PartitionKey(path="/productName"), default_ttl=200,
        unique_key_policy={"uniqueKeys": [{"paths": ["/user_id"]}]},
    )
    again = database.create_container_if_not_exists(id="changed", partition_key=PartitionKey(path="/productName"))
    assert again.read()["_rid"] == made.read()["_rid"]
    assert made.read()["defaultTtl"] == 200
    assert made.read()["uniqueKeyPolicy"]["uniqueKeys"][0]["paths"] == ["/user_id"]
    database.replace_container(made, partition_key=PartitionKey(path="/productName"), default_ttl=10)
    assert made.read()["defaultTtl"] == 10
    names = [one["id"] for one in database.list_containers()]
    assert names.count("changed") == 1
    found = list(database.query_containers('SELECT * FROM r WHERE r.id = "changed"'))
    assert [one["id"] for one in found] == ["changed"]
    database.delete_container("changed")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        made.read()


def test_insert_query_and_delete_by_the_item_itself(products):
    for item in products.query_items(
        query='SELECT * FROM products p WHERE p.productModel = "Model 2"', enable_cross_partition_query=True
    ):
        # The whole item goes in, so the SDK addresses it by its `_self` link.
        products.delete_item(item, partition_key="Widget")
    left = sorted(item["id"] for item in products.read_all_items())
    assert left == [f"item{n}" for n in (1, 3, 4, 5, 6, 7, 8, 9)]


def test_read_and_replace_by_the_item_itself(products):
    item = products.read_item("item3", partition_key="Widget")
    item["productModel"] = "Model 33"
    replaced = products.replace_item(item, item)
    assert replaced["productModel"] == "Model 33"
    assert products.read_item(replaced, partition_key="Widget")["_etag"] == replaced["_etag"]
    patched = products.patch_item(replaced, "Widget", [{"op": "set", "path": "/productModel", "value": "Model 34"}])
    assert products.read_item("item3", "Widget")["_etag"] == patched["_etag"]


def test_parameterized_query(products):
    discontinued = products.query_items(
        query="SELECT * FROM products p WHERE p.productModel = @model",
        parameters=[{"name": "@model", "value": "Model 7"}], enable_cross_partition_query=True,
    )
    assert [item["id"] for item in discontinued] == ["item7"]


def test_throughput_is_read_and_replaced(products):
    assert products.get_throughput().offer_throughput == 400
    assert products.replace_throughput(500).offer_throughput == 500
    assert products.get_throughput().offer_throughput == 500


def test_throughput_of_a_database_is_read_and_replaced(client):
    database = client.create_database("python-shared", offer_throughput=700)
    try:
        assert database.get_throughput().offer_throughput == 700
        assert database.replace_throughput(900).offer_throughput == 900
        assert database.get_throughput().offer_throughput == 900
    finally:
        client.delete_database(database)


def test_autoscale_throughput(database):
    container = database.create_container(
        "autoscale", PartitionKey(path="/pk"), offer_throughput=ThroughputProperties(auto_scale_max_throughput=5000)
    )
    assert container.get_throughput().auto_scale_max_throughput == 5000


def test_connection_string_and_response_hook(server, products):
    seen = []
    with CosmosClient.from_connection_string(f"AccountEndpoint={server.endpoint};AccountKey={KEY};") as client:
        container = client.get_database_client("python").get_container_client("products")
        item = container.read_item("item1", "Widget", response_hook=lambda headers, _: seen.append(headers["etag"]))
    assert seen == [item["_etag"]]


def test_a_wrong_key_is_401(server):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        CosmosClient(server.endpoint, "d3Jvbmc=").create_database("never")
    assert refused.value.status_code == 401


def test_properties_say_what_was_asked_for(database):
    policy = {
        "indexingMode": "consistent", "automatic": True, "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/secret/*"}],
    }
    made = database.create_container("properties", PartitionKey(path="/pk"), indexing_policy=policy)
    read = made.read()
    assert read["indexingPolicy"]["excludedPaths"][0] == {"path": "/secret/*"}
    assert read["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 2}
    assert read["_self"].startswith("dbs/") and read["_self"].endswith("/")
    database.delete_container(made)
