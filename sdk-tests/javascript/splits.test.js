// Splits and merges in the middle of a feed: nothing is lost, nothing comes twice, each key keeps its order.
import { test } from "node:test";
import assert from "node:assert/strict";
import {
  allVersions, beginning, byKey, drain, events, fromNow, newContainer, present, range, readOn, resume, server, versions,
} from "./lib.js";

const KEYS = range(12).map((n) => `k${n}`);

async function write(container, round) {
  for (const pk of KEYS) {
    await container.items.upsert({ id: `${pk}x`, pk, v: round });
    await container.items.upsert({ id: `${pk}-${round}`, pk, v: round });
  }
}

const splitAll = (container) => server.ranges(container).forEach((one) => server.split(container, one.id));
const mergeFirstTwo = (container) => {
  const [left, right] = server.ranges(container);
  server.merge(container, left.id, right.id);
};

const CHANGES = {
  "a split": (container) => server.split(container, "0"),
  "splits of all": splitAll,
  "a merge": mergeFirstTwo,
  "a split and a merge of the children": (container) => {
    const [left, right] = server.split(container, "0");
    server.merge(container, left.id, right.id);
  },
  "a merge across the old border": (container) => {
    const left = server.split(container, "0");
    const right = server.split(container, "1");
    server.merge(container, left[1].id, right[0].id);
  },
  "two splits of all and merges down to one": (container) => {
    splitAll(container);
    splitAll(container);
    while (server.ranges(container).length > 1) mergeFirstTwo(container);
  },
};

for (const [name, change] of Object.entries(CHANGES)) {
  test(`the latest feed goes on by continuation after ${name}`, async () => {
    const container = await newContainer();
    await write(container, 1);
    const first = await drain(container, { ...beginning(), maxItemCount: 5 });
    assert.deepEqual(versions(first.items).sort(), await present(container));
    change(container);
    await write(container, 2);
    const second = await drain(container, { ...resume(first.continuation), maxItemCount: 5 });
    assert.deepEqual(byKey(second.items, versions), Object.fromEntries(
      KEYS.map((pk) => [pk, [`${pk}x=2`, `${pk}-2=2`]]),
    ));
    assert.deepEqual((await drain(container, resume(second.continuation))).items, []);
  });

  test(`the latest feed goes on in the middle of a reading through ${name}`, async () => {
    const container = await newContainer();
    await write(container, 1);
    await write(container, 2);
    const iterator = container.items.getChangeFeedIterator({ ...beginning(), maxItemCount: 5 });
    const seen = [...(await iterator.readNext()).result, ...(await iterator.readNext()).result];
    assert.equal(seen.length, 10);
    change(container);
    const ids = new Set(seen.map((item) => item.id));
    const unseen = (await container.items.readAll().fetchAll()).resources.find((item) => !ids.has(item.id));
    await container.item(unseen.id, unseen.pk).delete();
    await container.items.upsert({ id: seen[0].id, pk: seen[0].pk, v: 3 });
    const rest = (await readOn(iterator)).items;
    assert.deepEqual(
      versions([...seen, ...rest]).sort(), [...(await present(container)), ...versions([seen[0]])].sort(),
    );
  });

  test(`all versions go on by continuation after ${name}`, async () => {
    const container = await newContainer();
    const now = (await drain(container, { ...allVersions, ...fromNow() })).continuation;
    await write(container, 1);
    await write(container, 2);
    change(container);
    for (const pk of KEYS) await container.item(`${pk}-1`, pk).delete();
    const feed = await drain(container, { ...allVersions, ...resume(now), maxItemCount: 5 });
    assert.deepEqual(byKey(feed.items, events), Object.fromEntries(KEYS.map((pk) => [pk, [
      `create ${pk}x →1`, `create ${pk}-1 →1`, `replace ${pk}x 1→2`, `create ${pk}-2 →2`, `delete ${pk}-1 1→`,
    ]])));
    assert.deepEqual((await drain(container, { ...allVersions, ...resume(feed.continuation) })).items, []);
  });

  test(`all versions go on in the middle of a reading through ${name}`, async () => {
    const container = await newContainer();
    const now = (await drain(container, { ...allVersions, ...fromNow() })).continuation;
    await write(container, 1);
    await write(container, 2);
    const iterator = container.items.getChangeFeedIterator({ ...allVersions, ...resume(now), maxItemCount: 5 });
    const seen = [...(await iterator.readNext()).result, ...(await iterator.readNext()).result];
    change(container);
    await write(container, 3);
    seen.push(...(await readOn(iterator)).items);
    assert.deepEqual(byKey(seen, events), Object.fromEntries(KEYS.map((pk) => [pk, [
      `create ${pk}x →1`, `create ${pk}-1 →1`, `replace ${pk}x 1→2`, `create ${pk}-2 →2`,
      `replace ${pk}x 2→3`, `create ${pk}-3 →3`,
    ]])));
  });
}

/** Ranges change between readings, not in the middle of one: see the defects of 4.9.3 in the README of these suites,
 * of which one would have a reading go on for ever. */
test("nothing is lost while writes, splits, merges and readings go on", async () => {
  const rounds = 25;
  const container = await newContainer();
  let full = await drain(container, { ...allVersions, ...fromNow() });
  let latest = await drain(container, beginning());
  const seen = { full: [], latest: [] };
  const read = async () => {
    full = await drain(container, { ...allVersions, ...resume(full.continuation), maxItemCount: 4 });
    latest = await drain(container, { ...resume(latest.continuation), maxItemCount: 4 });
    seen.full.push(...full.items);
    seen.latest.push(...latest.items);
    return full.items.length + latest.items.length;
  };
  let done = false;
  const write = async (keys) => {
    for (const v of range(rounds)) for (const pk of keys) await container.items.upsert({ id: "x", pk, v });
  };
  const writing = Promise.all([KEYS.slice(0, 4), KEYS.slice(4, 8), KEYS.slice(8)].map(write)).finally(() => (done = true));
  const change = async (command, option, ids) => {
    const changed = await server.later(container, command, option, ids);
    await read();
    return changed;
  };
  let changes = 0;
  for (; !done; changes += 6) {
    // The two halves on both sides of the border become one range and, cut at the border, two again.
    const [a, b] = await server.later(container, "ranges");
    const left = await change("split", "--range", a.id);
    const right = await change("split", "--range", b.id);
    const [middle] = await change("merge", "--ranges", `${left[1].id},${right[0].id}`);
    const [first] = await change("merge", "--ranges", `${left[0].id},${middle.id}`);
    const [all] = await change("merge", "--ranges", `${first.id},${right[1].id}`);
    await change("split", "--range", all.id);
  }
  await writing;
  assert.ok(changes >= 6, "the ranges changed under way");
  // It may say too early that there is nothing new: only if it says so often in a row there is nothing.
  for (let silent = 0; silent < 8; ) silent = (await read()) ? 0 : silent + 1;
  // The SDK may meet two changes in one go and read parts twice, see the next test: what comes for the first time comes in
  // order, and nothing is missing.
  const every = range(rounds).map((v) => (v ? `replace x ${v - 1}→${v}` : "create x →0"));
  const firsts = Object.entries(byKey(seen.full, events)).map(([pk, told]) => [pk, [...new Set(told)]]);
  assert.deepEqual(Object.fromEntries(firsts), Object.fromEntries(KEYS.map((pk) => [pk, every])));
  const last = byKey(seen.latest, (items) => items.map((item) => item.v));
  assert.deepEqual(Object.keys(last).sort(), [...KEYS].sort());
  for (const [pk, values] of Object.entries(last)) {
    assert.ok(values.every((v, n) => n === 0 || v >= values[n - 1]), `${pk}: ${values}`);
    assert.equal(values.at(-1), rounds - 1, pk);
  }
});

/** A defect of 4.9.3: `getPartitionRangeId` puts the children of a range into the queue; if the first of them answers
 * 410 as well, `shouldRetryOnFailure` puts in those of the whole range again and takes out only the first. */
test("a range that is gone twice in a row loses nothing and brings its second half twice", async () => {
  const container = await newContainer();
  const { continuation } = await drain(container, fromNow());
  for (const pk of KEYS) await container.items.create({ id: pk, pk, v: 1 });
  splitAll(container);
  const [, , , secondHalf] = server.ranges(container);
  const twice = new Set();
  for (const pk of KEYS) {
    const { headers } = await container.item(pk, pk).read();
    if (headers["x-ms-documentdb-partitionkeyrangeid"] === secondHalf.id) twice.add(pk);
  }
  assert.ok(twice.size > 0 && twice.size < KEYS.length);
  const gone = ["--status", "410", "--substatus", "1002", "--method", "GET"];
  server.fault(...gone, "--path-contains", `${container.id}/docs`, "--count", "2");
  const { items } = await drain(container, resume(continuation));
  assert.deepEqual(byKey(items, versions), Object.fromEntries(
    KEYS.map((pk) => [pk, Array(twice.has(pk) ? 2 : 1).fill(`${pk}=1`)]),
  ));
});

test("old feed ranges and one key keep their border through all of it", async () => {
  const container = await newContainer();
  const scopes = [...(await container.getFeedRanges()), "k5"];
  const tokens = [];
  for (const scope of scopes) tokens.push((await drain(container, fromNow(scope))).continuation);
  const inside = [];
  const changes = [splitAll, mergeFirstTwo, CHANGES["two splits of all and merges down to one"]];
  for (const [round, change] of changes.entries()) {
    change(container);
    await write(container, round);
    for (const [index, token] of tokens.entries()) {
      const feed = await drain(container, resume(token));
      tokens[index] = feed.continuation;
      const came = byKey(feed.items, versions);
      inside[index] ??= Object.keys(came).sort();
      const expected = inside[index].map((pk) => [pk, [`${pk}x=${round}`, `${pk}-${round}=${round}`]]);
      assert.deepEqual(came, Object.fromEntries(expected));
    }
  }
  assert.deepEqual([...inside[0], ...inside[1]].sort(), [...KEYS].sort());
  assert.deepEqual(inside[2], ["k5"]);
});

test("points, batches and bulk go on through splits and merges", async () => {
  const container = await newContainer();
  for (const [round, change] of Object.values(CHANGES).slice(0, 3).entries()) {
    if (round < 2) change(container); else mergeFirstTwo(container);
    await write(container, round);
    assert.equal((await container.item("k3x", "k3").read()).resource.v, round);
    const upsert = { operationType: "Upsert", resourceBody: { id: "b", pk: "k3", v: round } };
    assert.equal((await container.items.batch([upsert], "k3")).code, 200);
    const answers = await container.items.executeBulkOperations(
      KEYS.map((pk) => ({ operationType: "Upsert", partitionKey: pk, resourceBody: { id: "bulk", pk, v: round } })),
    );
    assert.deepEqual(answers.map((one) => one.response?.statusCode ?? one.error), KEYS.map(() => (round ? 200 : 201)));
  }
  const { items } = await drain(container, beginning());
  assert.deepEqual(versions(items).sort(), await present(container));
});
