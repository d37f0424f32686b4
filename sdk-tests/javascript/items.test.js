// Items, batches, bulk and patches: exact statuses, etags and what is there afterwards.
import { test } from "node:test";
import assert from "node:assert/strict";
import { PartitionKeyKind } from "@azure/cosmos";
import { byKey, drain, beginning, failure, fromNow, newContainer, present, range, resume, versions } from "./lib.js";

const own = (item) => Object.fromEntries(Object.entries(item).filter(([name]) => !name.startsWith("_")));
const ifMatch = (etag) => ({ accessCondition: { type: "IfMatch", condition: etag } });

test("each write says what it did and gives a new etag", async () => {
  const container = await newContainer();
  const created = await container.items.create({ id: "1", pk: "a", v: 1, deep: { list: [1, 2.5, null, true, "é"] } });
  assert.equal(created.statusCode, 201);
  assert.equal(created.etag, created.resource._etag);
  assert.deepEqual(own(created.resource), { id: "1", pk: "a", v: 1, deep: { list: [1, 2.5, null, true, "é"] } });
  const read = await container.item("1", "a").read();
  assert.deepEqual([read.statusCode, read.resource], [200, created.resource]);
  const replaced = await container.item("1", "a").replace({ id: "1", pk: "a", v: 2 });
  const upserted = await container.items.upsert({ id: "1", pk: "a", v: 3 });
  const fresh = await container.items.upsert({ id: "2", pk: "a", v: 1 });
  const patched = await container.item("1", "a").patch([{ op: "incr", path: "/v", value: 1 }]);
  assert.deepEqual([replaced, upserted, fresh, patched].map((one) => one.statusCode), [200, 200, 201, 200]);
  assert.equal(new Set([created, replaced, upserted, patched].map((one) => one.etag)).size, 4);
  assert.equal((await container.item("1", "a").delete()).statusCode, 204);
  assert.deepEqual(await present(container), ["2=1"]);
});

test("refusals have their exact status and substatus", async () => {
  const container = await newContainer();
  const { resource: old } = await container.items.create({ id: "1", pk: "a", v: 1 });
  await container.items.upsert({ id: "1", pk: "a", v: 2 });
  const item = container.item("1", "a");
  assert.deepEqual(await failure(container.items.create({ id: "1", pk: "a" })), [409, 0]);
  assert.deepEqual(await failure(item.replace({ ...old, v: 3 }, ifMatch(old._etag))), [412, 0]);
  assert.deepEqual(await failure(container.items.upsert({ ...old, v: 3 }, ifMatch(old._etag))), [412, 0]);
  assert.deepEqual(await failure(item.patch([{ op: "set", path: "/v", value: 3 }], ifMatch(old._etag))), [412, 0]);
  assert.deepEqual(await failure(item.delete(ifMatch(old._etag))), [412, 0]);
  assert.deepEqual(await failure(container.item("none", "a").delete()), [404, 0]);
  assert.deepEqual(await failure(container.item("none", "a").replace({ id: "none", pk: "a" })), [404, 0]);
  assert.deepEqual(await failure(item.replace({ id: "1", pk: "b", v: 3 })), [400, 1001]);
  assert.deepEqual(await failure(container.database.container("none").item("1", "a").delete()), [404, 1003]);
  const missing = await container.item("none", "a").read();
  assert.deepEqual([missing.statusCode, missing.resource], [404, undefined]);
  assert.deepEqual(await present(container), ["1=2"]);
});

test("an unchanged item is not sent again", async () => {
  const container = await newContainer();
  const { resource } = await container.items.create({ id: "1", pk: "a" });
  const unless = { accessCondition: { type: "IfNoneMatch", condition: resource._etag } };
  assert.equal((await container.item("1", "a").read(unless)).statusCode, 304);
  await container.items.upsert({ id: "1", pk: "a" });
  assert.equal((await container.item("1", "a").read(unless)).statusCode, 200);
});

const UNUSUAL = [
  "a b", " lead", "é✓", "漢字", "😀", "50%", "%41", "a+b", "a&b=c", "it's", 'say "hi"', "semi;colon", "(round)",
  "[square]", "{curly}", "<angle>", "@at", "!bang", "~tilde", "`tick", "^", "|pipe", "dot.", "colls", "docs",
  "AAAAAQ==", "x".repeat(255),
];

test("unusual ids and keys are just names", async () => {
  const container = await newContainer();
  for (const name of UNUSUAL) {
    await container.items.create({ id: name, pk: name, v: 1 });
    const item = container.item(name, name);
    assert.equal((await item.read()).resource.id, name);
    assert.equal((await item.patch([{ op: "incr", path: "/v", value: 1 }])).resource.v, 2, name);
    assert.equal((await item.replace({ id: name, pk: name, v: 3 })).resource.v, 3, name);
    const query = { query: "SELECT VALUE c.id FROM c WHERE c.id = @id", parameters: [{ name: "@id", value: name }] };
    assert.deepEqual((await container.items.query(query, { partitionKey: name }).fetchAll()).resources, [name]);
    assert.deepEqual(versions((await drain(container, beginning(name))).items), [`${name}=3`]);
  }
  assert.deepEqual(byKey((await drain(container, beginning())).items, versions), Object.fromEntries(
    UNUSUAL.map((name) => [name, [`${name}=3`]]),
  ));
  for (const name of UNUSUAL) await container.item(name, name).delete();
  assert.deepEqual(await present(container), []);
});

for (const version of [undefined, 1, 2]) {
  test(`keys of every type find their item in a container of hash version ${version ?? "left out"}`, async () => {
    const partitionKey = { paths: ["/pk"], ...(version && { kind: "Hash", version }) };
    const container = await newContainer({ partitionKey });
    const keys = ["a", "", 0, 1.5, -1, 2 ** 40, true, false, null, undefined, "k".repeat(500)];
    for (const [n, pk] of keys.entries()) {
      await container.items.create({ id: "same", pk, n });
    }
    for (const [n, pk] of keys.entries()) {
      assert.equal((await container.item("same", pk).read()).resource.n, n, `key ${pk}`);
    }
    const { items } = await drain(container, { ...beginning(), maxItemCount: 4 });
    assert.deepEqual(items.map((item) => item.n).sort((a, b) => a - b), range(keys.length));
  });
}

test("a hierarchical key finds items whole and by prefix", async () => {
  const container = await newContainer({
    partitionKey: { paths: ["/tenant", "/user"], kind: PartitionKeyKind.MultiHash, version: 2 },
  });
  for (const tenant of ["T1", "T2"]) {
    for (const user of [1, 2, 3]) await container.items.create({ id: `${tenant}${user}`, tenant, user, v: 1 });
  }
  assert.equal((await container.item("T12", ["T1", 2]).read()).resource.id, "T12");
  const ids = async (partitionKey) =>
    (await container.items.query("SELECT VALUE c.id FROM c", { partitionKey }).fetchAll()).resources.sort();
  assert.deepEqual(await ids(["T2", 3]), ["T23"]);
  assert.deepEqual(await ids(["T1"]), ["T11", "T12", "T13"]);
  const prefix = await drain(container, { ...beginning(["T2"]), maxItemCount: 2 });
  assert.deepEqual(versions(prefix.items), ["T21=1", "T22=1", "T23=1"]);
  await container.items.upsert({ id: "T23", tenant: "T2", user: 3, v: 2 });
  await container.items.upsert({ id: "T13", tenant: "T1", user: 3, v: 2 });
  assert.deepEqual(versions((await drain(container, resume(prefix.continuation))).items), ["T23=2"]);
});

test("two megabytes is the limit of an item", async () => {
  const container = await newContainer();
  const text = "x".repeat(2 * 1024 * 1024 - 1024);
  await container.items.create({ id: "1", pk: "a", v: 1, text });
  assert.equal((await container.item("1", "a").read()).resource.text, text);
  const over = { id: "2", pk: "a", v: 1, text: text + "x".repeat(2048) };
  assert.deepEqual(await failure(container.items.create(over)), [413, 0]);
  assert.deepEqual(await present(container), ["1=1"]);
});

test("an item lives as long as its ttl says", async () => {
  const container = await newContainer({ defaultTtl: -1 });
  await container.items.create({ id: "short", pk: "a", v: 1, ttl: 1 });
  await container.items.create({ id: "long", pk: "a", v: 1, ttl: 1000 });
  const deadline = Date.now() + 15_000;
  while ((await container.item("short", "a").read()).statusCode !== 404) {
    assert.ok(Date.now() < deadline, "the item did not expire");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.deepEqual(await present(container), ["long=1"]);
});

test("a batch does all kinds of operations in order", async () => {
  const container = await newContainer();
  await container.items.create({ id: "old", pk: "a", v: 1 });
  const { result, code } = await container.items.batch([
    { operationType: "Create", resourceBody: { id: "1", pk: "a", v: 1 } },
    { operationType: "Upsert", resourceBody: { id: "2", pk: "a", v: 2 } },
    { operationType: "Read", id: "1" },
    { operationType: "Replace", id: "1", resourceBody: { id: "1", pk: "a", v: 10 } },
    { operationType: "Patch", id: "2", resourceBody: { operations: [{ op: "incr", path: "/v", value: 3 }] } },
    { operationType: "Delete", id: "old" },
  ], "a");
  assert.equal(code, 200);
  assert.deepEqual(result.map((one) => one.statusCode), [201, 201, 200, 200, 200, 204]);
  assert.equal(result[2].resourceBody.v, 1);
  assert.deepEqual(await present(container), ["1=10", "2=5"]);
});

test("one failure undoes the whole batch", async () => {
  const container = await newContainer();
  await container.items.create({ id: "old", pk: "a", v: 1 });
  const before = (await drain(container, fromNow())).continuation;
  const { result, code } = await container.items.batch([
    { operationType: "Create", resourceBody: { id: "1", pk: "a" } },
    { operationType: "Create", resourceBody: { id: "old", pk: "a" } },
    { operationType: "Delete", id: "old" },
  ], "a");
  assert.equal(code, 207);
  assert.deepEqual(result.map((one) => one.statusCode), [424, 409, 424]);
  assert.deepEqual(await present(container), ["old=1"]);
  assert.deepEqual((await drain(container, resume(before))).items, []);
});

test("a batch of a hundred is one transaction in the feed", async () => {
  const container = await newContainer();
  const creates = range(100).map((v) => ({ operationType: "Create", resourceBody: { id: `${v}`, pk: "a", v } }));
  const { result } = await container.items.batch(creates, "a");
  assert.deepEqual(result.map((one) => one.statusCode), range(100).map(() => 201));
  const { pages } = await drain(container, { ...beginning("a"), maxItemCount: 7 });
  assert.deepEqual(pages.map((page) => page.map((item) => item.v)), [range(100)]);
});

test("bulk operations go to every range and answer one by one", async () => {
  const container = await newContainer();
  await container.items.create({ id: "taken", pk: "k0", v: 0 });
  const creates = range(150).map((v) => ({
    operationType: "Create", partitionKey: `k${v % 10}`, resourceBody: { id: `${v}`, pk: `k${v % 10}`, v },
  }));
  const answers = await container.items.executeBulkOperations([
    ...creates,
    { operationType: "Create", partitionKey: "k0", resourceBody: { id: "taken", pk: "k0" } },
    { operationType: "Read", partitionKey: "k0", id: "taken" },
    { operationType: "Delete", partitionKey: "k1", id: "none" },
  ]);
  const statuses = answers.map((answer) => answer.response?.statusCode ?? answer.error.code);
  assert.deepEqual(statuses, [...creates.map(() => 201), 409, 200, 404]);
  assert.equal((await present(container)).length, 151);
  const told = byKey((await drain(container, { ...beginning(), maxItemCount: 20 })).items, versions);
  for (const key of range(10)) {
    assert.deepEqual(told[`k${key}`].sort(), [
      ...range(15).map((n) => `${n * 10 + key}=${n * 10 + key}`), ...(key === 0 ? ["taken=0"] : []),
    ].sort());
  }
});

test("patch knows every operation and its condition", async () => {
  const container = await newContainer();
  await container.items.create({ id: "1", pk: "a", n: 1, list: [1, 3], gone: 1, from: "here" });
  const item = container.item("1", "a");
  const { resource } = await item.patch({
    condition: "from c where c.n = 1",
    operations: [
      { op: "add", path: "/list/1", value: 2 }, { op: "set", path: "/new", value: { x: null } },
      { op: "replace", path: "/list/0", value: 0 }, { op: "incr", path: "/n", value: -2 },
      { op: "remove", path: "/gone" }, { op: "move", from: "/from", path: "/to" },
    ],
  });
  assert.deepEqual(own(resource), { id: "1", pk: "a", n: -1, list: [0, 2, 3], new: { x: null }, to: "here" });
  const again = { condition: "from c where c.n = 1", operations: [{ op: "set", path: "/n", value: 5 }] };
  assert.deepEqual(await failure(item.patch(again)), [412, 0]);
  assert.deepEqual(await failure(item.patch([{ op: "replace", path: "/none", value: 1 }])), [400, 0]);
  assert.deepEqual(await failure(item.patch([{ op: "set", path: "/pk", value: "b" }])), [400, 0]);
  assert.equal((await item.read()).resource.n, -1);
});
