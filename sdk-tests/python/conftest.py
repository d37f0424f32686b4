"""What every test gets: the server, a client, a database of its own, and containers by a short call."""

import os
import uuid

import pytest
from azure.cosmos import CosmosClient, PartitionKey

from changefeed_server import KEY, OwnServer, Server


@pytest.fixture(scope="session")
def server():
    return Server(os.environ["COSMOS_ENDPOINT"])


@pytest.fixture(scope="session")
def client(server):
    with CosmosClient(server.endpoint, KEY) as client:
        yield client


@pytest.fixture(scope="session")
def database(client):
    return client.create_database("python")


@pytest.fixture
def new_container(database):
    """Makes a container keyed by `/pk` unless told otherwise; it begins with two ranges."""

    def make(paths="/pk", **options):
        kind = "Hash" if isinstance(paths, str) else "MultiHash"
        key = PartitionKey(path=paths, kind=kind)
        return database.create_container(f"c-{uuid.uuid4().hex[:12]}", key, **options)

    return make


@pytest.fixture
def container(new_container):
    return new_container()


@pytest.fixture
def own_server(tmp_path):
    """Starts servers of the test's own, and ends those that still run when it is over."""
    started = []

    def start(*options):
        started.append(OwnServer(tmp_path / f"store-{len(started)}", *options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(timeout=10)
