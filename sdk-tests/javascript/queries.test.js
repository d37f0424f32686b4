// Queries in every scope, with paging, aggregates and query plans, also across a split; and the SDK's own first steps.
import { test } from "node:test";
import assert from "node:assert/strict";
import { client, database, failure, newContainer, range, server } from "./lib.js";

async function filled() {
  const container = await newContainer();
  for (const v of range(30)) {
    await container.items.create({ id: `i${v}`, pk: `k${v % 10}`, v, odd: v % 2 === 1 });
  }
  return container;
}

const all = async (container, query, options) => (await container.items.query(query, options).fetchAll()).resources;

test("one key, parameters, the whole container, order, aggregates", async () => {
  const container = await filled();
  assert.deepEqual(await all(container, "SELECT VALUE c.v FROM c", { partitionKey: "k3" }), [3, 13, 23]);
  const parameters = [{ name: "@low", value: 10 }, { name: "@odd", value: true }];
  const query = "SELECT VALUE c.v FROM c WHERE c.v >= @low AND c.odd = @odd ORDER BY c.v";
  assert.deepEqual(await all(container, { query, parameters }), range(30).filter((v) => v >= 10 && v % 2));
  assert.deepEqual(await all(container, "SELECT VALUE c.v FROM c ORDER BY c.v DESC"), range(30).reverse());
  const first = await all(container, "SELECT TOP 2 c.id, c.v FROM c ORDER BY c.v");
  assert.deepEqual(first, [{ id: "i0", v: 0 }, { id: "i1", v: 1 }]);
  assert.deepEqual(await all(container, "SELECT VALUE c.v FROM c ORDER BY c.v OFFSET 4 LIMIT 3"), [4, 5, 6]);
  assert.deepEqual(await all(container, "SELECT VALUE COUNT(1) FROM c WHERE c.odd"), [15]);
  assert.deepEqual(await all(container, "SELECT VALUE SUM(c.v) FROM c"), [435]);
  assert.deepEqual(await all(container, "SELECT VALUE MAX(c.v) FROM c"), [29]);
  assert.deepEqual((await all(container, "SELECT DISTINCT VALUE c.pk FROM c")).sort(), range(10).map((n) => `k${n}`));
  assert.deepEqual(await all(container, "SELECT * FROM c WHERE c.v > 100"), []);
  assert.equal((await failure(container.items.query("SELEC * FROM c").fetchAll()))[0], 400);
});

test("a query goes page by page and on by continuation", async () => {
  const container = await filled();
  const seen = [], sizes = [];
  let continuationToken;
  do {
    const page = await container.items
      .query("SELECT VALUE c.v FROM c", { maxItemCount: 7, continuationToken })
      .fetchNext();
    seen.push(...page.resources);
    sizes.push(page.resources.length);
    continuationToken = page.continuationToken;
  } while (continuationToken);
  assert.deepEqual(sizes, [7, 7, 7, 7, 2]);
  assert.deepEqual(seen.sort((a, b) => a - b), range(30));
  const iterated = [];
  for await (const page of container.items.query("SELECT VALUE c.v FROM c", { maxItemCount: 4 }).getAsyncIterator()) {
    iterated.push(...page.resources);
  }
  assert.deepEqual(iterated.sort((a, b) => a - b), range(30));
});

test("a query goes on through a split", async () => {
  const container = await filled();
  const iterator = container.items.query("SELECT VALUE c.v FROM c", { maxItemCount: 4 });
  const seen = [...(await iterator.fetchNext()).resources];
  server.split(container, "0");
  server.split(container, "1");
  while (iterator.hasMoreResults()) seen.push(...((await iterator.fetchNext()).resources ?? []));
  assert.deepEqual(seen.sort((a, b) => a - b), range(30));
});

test("the query plan path brings the same rows, also after a split", async () => {
  const container = await filled();
  const options = { forceQueryPlan: true, maxItemCount: 4 };
  const ordered = "SELECT * FROM c ORDER BY c.v DESC";
  for (const change of [() => {}, () => server.split(container, "0"), () => server.split(container, "1")]) {
    change();
    assert.deepEqual((await all(container, ordered, options)).map((row) => row.v), range(30).reverse());
    assert.deepEqual(await all(container, "SELECT VALUE COUNT(1) FROM c", options), [30]);
    const unordered = (await all(container, "SELECT * FROM c", options)).map((row) => row.v);
    assert.deepEqual(unordered.sort((a, b) => a - b), range(30));
  }
});

test("the change of ranges shows in the feed ranges", async () => {
  const container = await filled();
  assert.equal((await container.getFeedRanges()).length, 2);
  const [left, right] = server.split(container, "0");
  const shown = (await container.readPartitionKeyRanges().fetchAll()).resources;
  assert.deepEqual(shown.map((one) => one.id).sort(), ["1", left.id, right.id]);
  assert.deepEqual(shown.find((one) => one.id === left.id).parents, ["0"]);
  const merged = server.merge(container, left.id, right.id);
  const after = (await container.readPartitionKeyRanges().fetchAll()).resources;
  assert.deepEqual(after.map((one) => one.id).sort(), ["1", merged.id]);
});

test("first steps as the SDK's own page shows them", async () => {
  const { database } = await client.databases.createIfNotExists({ id: "Test Database" });
  const { container } = await database.containers.createIfNotExists({ id: "Test Container" });
  const cities = [
    { id: "1", name: "Olympia", state: "WA", isCapitol: true },
    { id: "2", name: "Redmond", state: "WA", isCapitol: false },
    { id: "3", name: "Chicago", state: "IL", isCapitol: false },
  ];
  for (const city of cities) await container.items.create(city);
  const { resources } = await container.items
    .query({
      query: "SELECT * from c WHERE c.isCapitol = @isCapitol",
      parameters: [{ name: "@isCapitol", value: true }],
    })
    .fetchAll();
  assert.deepEqual(resources.map((city) => city.name), ["Olympia"]);
  assert.equal((await container.item("2").read()).resource.name, "Redmond");
  await container.item("2").patch([{ op: "add", path: "/population", value: 77_490 }]);
  await container.item("1").delete();
  const left = (await container.items.readAll().fetchAll()).resources;
  const known = left.map((city) => [city.name, city.population]).sort();
  assert.deepEqual(known, [["Chicago", undefined], ["Redmond", 77_490]]);
  assert.equal((await container.items.create({ name: "Tacoma" })).resource.id.length, 36);
  await database.delete();
  assert.deepEqual(await failure(database.read()), [404, 0]);
});

test("a database has a throughput of its own", async () => {
  const { database: shared } = await client.databases.create({ id: "javascript-shared", throughput: 700 });
  const { resource: offer } = await shared.readOffer();
  assert.equal(offer.content.offerThroughput, 700);
  await client.offer(offer.id).replace({ ...offer, content: { ...offer.content, offerThroughput: 900 } });
  assert.equal((await shared.readOffer()).resource.content.offerThroughput, 900);
  const { container } = await shared.containers.create({ id: "sharing", partitionKey: { paths: ["/pk"] } });
  assert.equal((await container.readOffer()).resource, undefined);
  await shared.delete();
});

test("databases, containers and throughput are listed, read, changed and deleted", async () => {
  const made = await database.containers.create({
    id: "changed", partitionKey: { paths: ["/pk"] }, throughput: 500, defaultTtl: 100,
    uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/mail"] }] },
  });
  assert.equal(made.statusCode, 201);
  const { container } = made;
  const again = database.containers.create({ id: "changed", partitionKey: { paths: ["/pk"] } });
  assert.deepEqual(await failure(again), [409, 0]);
  const { resource: offer } = await container.readOffer();
  assert.equal(offer.content.offerThroughput, 500);
  await client.offer(offer.id).replace({ ...offer, content: { ...offer.content, offerThroughput: 700 } });
  assert.equal((await container.readOffer()).resource.content.offerThroughput, 700);
  const { resource } = await container.read();
  assert.deepEqual([resource.defaultTtl, resource.uniqueKeyPolicy.uniqueKeys[0].paths], [100, ["/mail"]]);
  await container.replace({ ...resource, defaultTtl: 200 });
  assert.equal((await container.read()).resource.defaultTtl, 200);
  const listed = (await database.containers.readAll().fetchAll()).resources.map((one) => one.id);
  assert.ok(listed.includes("changed"));
  const named = await database.containers.query("SELECT * FROM r WHERE r.id = 'changed'").fetchAll();
  assert.deepEqual(named.resources.map((one) => one.id), ["changed"]);
  assert.equal((await container.delete()).statusCode, 204);
  assert.deepEqual(await failure(container.read()), [404, 0]);
});
