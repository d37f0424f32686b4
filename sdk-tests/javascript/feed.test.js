// The change feed in both modes: every start, every scope, resuming by continuation, with exactly what arrives.
import { test } from "node:test";
import assert from "node:assert/strict";
import {
  allVersions, beginning, byKey, client, database, drain, events, failure, fromNow, fromTime, newContainer, range,
  resume, server, versions,
} from "./lib.js";

const KEYS = range(10).map((n) => `k${n}`);
const SCOPES = ["container", "first range", "last range", "key"];

/** The argument of a scope, and the keys that lie in it. */
async function scopeOf(container, name) {
  if (name === "container") return [undefined, KEYS];
  if (name === "key") return ["k3", ["k3"]];
  const ranges = await container.getFeedRanges();
  const feedRange = ranges[name === "first range" ? 0 : 1];
  // Which keys lie there is told by reads of their items, not by the feed.
  const id = name === "first range" ? "0" : "1";
  const inside = new Set();
  for (const pk of KEYS) {
    const { headers } = await container.item(`${pk}x`, pk).read();
    if (headers["x-ms-documentdb-partitionkeyrangeid"] === id) inside.add(pk);
  }
  assert.ok(inside.size > 0 && inside.size < KEYS.length, "the scope is a part, and not an empty one");
  return [feedRange, [...inside].sort()];
}

/** Writes two items a key and returns what the feed must bring for each of them, in order. */
async function write(container, round) {
  const expected = {};
  for (const pk of KEYS) {
    for (const id of [`${pk}x`, `${pk}y`]) {
      await container.items.upsert({ id, pk, v: round });
      (expected[pk] ??= []).push(`${id}=${round}`);
    }
  }
  return expected;
}

const only = (expected, keys) => Object.fromEntries(keys.map((key) => [key, expected[key]]));

for (const scope of SCOPES) {
  test(`from the beginning, then by continuation: ${scope}`, async () => {
    const container = await newContainer();
    let expected = await write(container, 1);
    const [where, keys] = await scopeOf(container, scope);
    const first = await drain(container, { ...beginning(where), maxItemCount: 3 });
    assert.deepEqual(byKey(first.items, versions), only(expected, keys));
    assert.ok(first.pages.every((page) => page.length <= 3));
    assert.deepEqual((await drain(container, resume(first.continuation))).items, []);
    expected = await write(container, 2);
    const second = await drain(container, resume(first.continuation));
    assert.deepEqual(byKey(second.items, versions), only(expected, keys));
  });

  test(`from now, then by continuation: ${scope}`, async () => {
    const container = await newContainer();
    await write(container, 1);
    const [where, keys] = await scopeOf(container, scope);
    let feed = await drain(container, fromNow(where));
    assert.deepEqual(feed.items, []);
    for (const round of [2, 3]) {
      const expected = await write(container, round);
      feed = await drain(container, { ...resume(feed.continuation), maxItemCount: 2 });
      assert.deepEqual(byKey(feed.items, versions), only(expected, keys));
    }
  });

  test(`from a point in time, then by continuation: ${scope}`, async () => {
    const container = await newContainer();
    await write(container, 1);
    const [where, keys] = await scopeOf(container, scope);
    await new Promise((resolve) => setTimeout(resolve, 1000 - (Date.now() % 1000)));
    const moment = new Date();
    let expected = await write(container, 2);
    const feed = await drain(container, { ...fromTime(moment, where), maxItemCount: 3 });
    assert.deepEqual(byKey(feed.items, versions), only(expected, keys));
    expected = await write(container, 3);
    assert.deepEqual(byKey((await drain(container, resume(feed.continuation))).items, versions), only(expected, keys));
  });

  test(`all versions and deletes from now, then by continuation: ${scope}`, async () => {
    const container = await newContainer();
    await write(container, 1);
    const [where, keys] = await scopeOf(container, scope);
    const now = await drain(container, { ...allVersions, ...fromNow(where) });
    assert.deepEqual(now.items, []);
    for (const pk of KEYS) {
      const item = container.item(`${pk}x`, pk);
      await item.replace({ id: `${pk}x`, pk, v: 2 });
      await item.patch([{ op: "incr", path: "/v", value: 1 }]);
      await item.delete();
      await container.items.create({ id: `${pk}x`, pk, v: 4 });
    }
    const again = { ...allVersions, ...resume(now.continuation), maxItemCount: 3 };
    const feed = await drain(container, again);
    const expected = Object.fromEntries(keys.map((pk) => [
      pk, [`replace ${pk}x 1→2`, `replace ${pk}x 2→3`, `delete ${pk}x 3→`, `create ${pk}x →4`],
    ]));
    assert.deepEqual(byKey(feed.items, events), expected);
    assert.deepEqual((await drain(container, { ...allVersions, ...resume(feed.continuation) })).items, []);
    assert.deepEqual(byKey((await drain(container, again)).items, events), expected);
  });
}

test("feed ranges from before a merge are parts of a range, those from before a split are more than one", async () => {
  const container = await newContainer();
  const expected = await write(container, 1);
  const coarse = await container.getFeedRanges();
  const [a, b] = server.split(container, "0");
  const fine = await client.database(database.id).container(container.id).getFeedRanges();
  assert.deepEqual([coarse.length, fine.length], [2, 3]);
  const read = async (scope) => byKey((await drain(container, beginning(scope))).items, versions);
  const wide = [await read(coarse[0]), await read(coarse[1])];
  server.merge(container, a.id, b.id);
  const parts = [await read(fine[0]), await read(fine[1]), await read(fine[2])];
  assert.ok(parts.every((part) => Object.keys(part).length > 0), "each part holds something");
  assert.equal(parts.reduce((n, part) => n + Object.keys(part).length, 0), KEYS.length);
  assert.deepEqual(Object.assign({}, ...parts), expected);
  assert.deepEqual(wide, [{ ...parts[0], ...parts[1] }, parts[2]]);
});

test("one iterator goes on polling", async () => {
  const container = await newContainer();
  const iterator = container.items.getChangeFeedIterator(fromNow());
  assert.equal((await iterator.readNext()).statusCode, 304);
  for (const round of [1, 2]) {
    const expected = await write(container, round);
    const seen = [];
    for (;;) {
      const response = await iterator.readNext();
      if (response.statusCode === 304) break;
      seen.push(...response.result);
    }
    assert.deepEqual(byKey(seen, versions), expected);
  }
});

test("every page is a place to go on from", async () => {
  const container = await newContainer();
  const expected = Object.values(await write(container, 1)).flat().sort();
  for (let stopAfter = 1; stopAfter <= expected.length; stopAfter += 3) {
    const iterator = container.items.getChangeFeedIterator({ ...beginning(), maxItemCount: 1 });
    const seen = [];
    let token;
    for (let n = 0; n < stopAfter; n++) {
      const page = await iterator.readNext();
      seen.push(...versions(page.result));
      token = page.continuationToken;
    }
    assert.equal(seen.length, stopAfter);
    seen.push(...versions((await drain(container, resume(token))).items));
    assert.deepEqual(seen.sort(), expected);
  }
});

test("all versions begin only now", async () => {
  const container = await newContainer();
  for (const start of [beginning(), fromTime(new Date()), beginning("k1")]) {
    await assert.rejects(async () => drain(container, { ...allVersions, ...start }));
  }
});

test("a continuation of a container that was made again is refused", async () => {
  const partitionKey = { paths: ["/pk"], kind: "Hash", version: 2 };
  const container = await newContainer({ id: "again", partitionKey });
  await container.items.create({ id: "1", pk: "a", v: 1 });
  const tokens = [];
  for (const scope of [undefined, "a"]) tokens.push((await drain(container, beginning(scope))).continuation);
  await container.delete();
  const again = await newContainer({ id: "again", partitionKey });
  await again.items.create({ id: "2", pk: "a", v: 2 });
  for (const token of tokens) {
    await assert.rejects(drain(again, resume(token)), /not for the current container definition/);
  }
  assert.deepEqual(versions((await drain(again, beginning())).items), ["2=2"]);
  await again.delete();
  assert.equal((await failure(again.read()))[0], 404);
});

test("the feed of the older interface", async () => {
  const container = await newContainer();
  for (const v of range(5)) await container.items.create({ id: `${v}`, pk: "a", v });
  await container.items.create({ id: "other", pk: "b", v: 9 });
  const iterator = container.items.changeFeed("a", { startFromBeginning: true, maxItemCount: 2 });
  const seen = [];
  while (iterator.hasMoreResults) {
    const page = await iterator.fetchNext();
    if (page.statusCode === 304) break;
    seen.push(...versions(page.result));
  }
  assert.deepEqual(seen, range(5).map((v) => `${v}=${v}`));
});
