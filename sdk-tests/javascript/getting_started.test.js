// The SDK's own first steps, as its documentation shows them, with what they must bring.
import { test } from "node:test";
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { ChangeFeedStartFrom, CosmosClient, PartitionKeyDefinitionVersion, PartitionKeyKind } from "@azure/cosmos";
import { KEY, server } from "./lib.js";

async function newDatabase(t) {
  const client = new CosmosClient({ endpoint: server.endpoint, key: KEY });
  const id = `first steps ${randomUUID()}`;
  const { database } = await client.databases.createIfNotExists({ id });
  t.after(() => database.delete());
  assert.equal((await client.databases.createIfNotExists({ id })).statusCode, 200);
  return database;
}

const RIVERS = [
  { id: "1", name: "Elbe", sea: "North", navigable: true },
  { id: "2", name: "Ilm", sea: "North", navigable: false },
  { id: "3", name: "Oder", sea: "Baltic", navigable: true },
];
const ids = (items) => items.map((item) => item.id).sort();

test("a task is created, found, changed and deleted", async (t) => {
  const database = await newDatabase(t);
  const { container } = await database.containers.createIfNotExists(
    { id: "Tasks", partitionKey: { kind: "Hash", paths: ["/category"] } },
    { offerThroughput: 400 },
  );
  const { resource: created } = await container.items.create({ id: "3", category: "fun", done: false });
  const { resources } = await container.items.query({ query: "SELECT * from c" }).fetchAll();
  assert.deepEqual(resources, [created]);
  const { resource: updated } = await container.item("3", "fun").replace({ ...created, done: true });
  assert.equal(updated.done, true);
  assert.equal((await container.item("3", "fun").delete()).statusCode, 204);
  assert.equal((await container.item("3", "fun").read()).statusCode, 404);
});

test("a container without a partition key of its own takes items all the same", async (t) => {
  const database = await newDatabase(t);
  const { container } = await database.containers.createIfNotExists({ id: "Rivers" });
  for (const river of RIVERS) await container.items.create(river);
  for (const key of ["1", 2, true, {}, undefined, null, ["1"]]) {
    assert.equal((await container.item("none", key).read()).statusCode, 404, JSON.stringify(key));
  }
  assert.equal((await container.item("1").read()).resource.name, "Elbe");
  const plain = await container.items.query("SELECT * from c WHERE c.navigable = true").fetchAll();
  assert.deepEqual(ids(plain.resources), ["1", "3"]);
  const parameters = [{ name: "@sea", value: "North" }];
  const query = { query: "SELECT * from c WHERE c.sea = @sea", parameters };
  assert.deepEqual(ids((await container.items.query(query).fetchAll()).resources), ["1", "2"]);
  assert.equal((await container.item("1").delete()).statusCode, 204);
});

test("pages of a query come with continuations", async (t) => {
  const database = await newDatabase(t);
  const { container } = await database.containers.createIfNotExists({ id: "Rivers", partitionKey: "/sea" });
  for (const river of RIVERS) await container.items.create(river);
  for (const sql of ["SELECT * from c", "SELECT * from c ORDER BY c.id"]) {
    const options = { maxItemCount: 1, enableQueryControl: true, forceQueryPlan: true };
    const found = [];
    const pages = container.items.query(sql, options);
    while (pages.hasMoreResults()) found.push(...((await pages.fetchNext()).resources ?? []));
    assert.deepEqual(ids(found), ["1", "2", "3"], sql);
  }
});

test("a hierarchical key, and the feed of one of its keys", async (t) => {
  const database = await newDatabase(t);
  const paths = ["/name", "/address/zip"];
  const { container } = await database.containers.createIfNotExists({
    id: "People",
    partitionKey: { paths, version: PartitionKeyDefinitionVersion.V2, kind: PartitionKeyKind.MultiHash },
  });
  await container.items.create({ id: "1", name: "foo", address: { zip: 100 }, active: true });
  await container.items.create({ id: "2", name: "foo", address: { zip: 200 }, active: true });
  assert.equal((await container.item("1", ["foo", 100]).read()).statusCode, 200);
  const partitionKey = ["foo", 100];
  const query = "SELECT * from c WHERE c.active = true";
  assert.deepEqual(ids((await container.items.query(query, { partitionKey }).fetchAll()).resources), ["1"]);
  const changeFeedStartFrom = ChangeFeedStartFrom.Beginning(partitionKey);
  const feed = container.items.getChangeFeedIterator({ changeFeedStartFrom });
  assert.equal(feed.hasMoreResults, true);
  assert.deepEqual(ids((await feed.readNext()).result), ["1"]);
  assert.equal((await feed.readNext()).statusCode, 304);
});
