// Servers that throttle, fail or speak TLS: what the SDK survives, and what it must tell.
import { test, afterEach } from "node:test";
import assert from "node:assert/strict";
import { Agent } from "node:https";
import { CosmosClient } from "@azure/cosmos";
import {
  KEY, allVersions, beginning, byKey, drain, events, failure, fromNow, newContainer, ownServer, present, range, readOn,
  resume, server, versions,
} from "./lib.js";

afterEach(() => server.fault("--clear"));

/** The container through a client that notes the status of every answer about items, those it tries again too. */
async function watched() {
  const { id, database } = await newContainer();
  const seen = [];
  const watching = new CosmosClient({
    endpoint: server.endpoint, key: KEY,
    plugins: [{
      on: "request",
      plugin: async (context, _diagnostics, next) => {
        const items = context.path?.includes("/docs");
        try {
          const response = await next(context);
          if (items) seen.push(response.code);
          return response;
        } catch (error) {
          if (items) seen.push(error.code);
          throw error;
        }
      },
    }],
  });
  const container = watching.database(database.id).container(id);
  await container.items.create({ id: "1", pk: "a", v: 1 });
  seen.length = 0;
  return { container, seen };
}

const fault = (status, substatus, ...options) =>
  server.fault("--status", `${status}`, "--substatus", `${substatus}`, "--path-contains", "/docs", ...options);

test("throttling is waited out", async () => {
  const { container, seen } = await watched();
  server.throttle(2, 400);
  assert.equal((await container.items.create({ id: "2", pk: "a", v: 2 })).statusCode, 201);
  assert.deepEqual(new Set(seen), new Set([429, 201]));
  seen.length = 0;
  server.throttle(2, 400);
  assert.deepEqual(versions((await drain(container, beginning())).items), ["1=1", "2=2"]);
  assert.equal(seen[0], 429);
});

test("throttling without end is told", async () => {
  const { container, seen } = await watched();
  server.throttle(20, 1);
  assert.deepEqual(await failure(container.items.create({ id: "2", pk: "a", v: 2 })), [429, 3200]);
  assert.deepEqual(seen, range(10).map(() => 429));
  server.throttle(0, 1);
  assert.deepEqual(await present(container), ["1=1"]);
});

for (const [status, substatus] of [[503, 0], [404, 1002], [429, 3200]]) {
  test(`a read survives one ${status}/${substatus}`, async () => {
    const { container, seen } = await watched();
    fault(status, substatus, "--method", "GET");
    assert.equal((await container.item("1", "a").read()).resource.v, 1);
    assert.deepEqual(seen, [status, 200]);
  });
}

for (const [status, substatus] of [[410, 1002], [449, 0], [403, 0], [500, 0], [408, 0]]) {
  test(`the SDK hands ${status}/${substatus} of a read to the caller`, async () => {
    const { container } = await watched();
    fault(status, substatus, "--method", "GET");
    assert.deepEqual(await failure(container.item("1", "a").read()), [status, substatus]);
    assert.equal((await container.item("1", "a").read()).resource.v, 1);
  });
}

for (const [status, substatus] of [[410, 1002], [410, 1007], [503, 0], [429, 3200]]) {
  for (const mode of [{}, allVersions]) {
    test(`the ${mode === allVersions ? "full" : "latest"} feed survives ${status}/${substatus}`, async () => {
      const { container, seen } = await watched();
      const now = (await drain(container, { ...mode, ...fromNow() })).continuation;
      for (const v of range(8)) await container.items.create({ id: `n${v}`, pk: `k${v}`, v });
      seen.length = 0;
      const iterator = container.items.getChangeFeedIterator({ ...mode, ...resume(now), maxItemCount: 2 });
      fault(status, substatus, "--method", "GET");
      const items = [...(await iterator.readNext()).result];
      fault(status, substatus, "--method", "GET");
      items.push(...(await readOn(iterator)).items);
      assert.deepEqual(byKey(items, mode === allVersions ? events : versions), Object.fromEntries(
        range(8).map((v) => [`k${v}`, [mode === allVersions ? `create n${v} →${v}` : `n${v}=${v}`]]),
      ));
      assert.equal(seen.filter((one) => one === status).length, 2);
    });
  }
}

test("a write whose answer is lost is there once", async () => {
  const { container } = await watched();
  const now = (await drain(container, { ...allVersions, ...fromNow() })).continuation;
  fault(408, 0, "--method", "POST", "--after");
  assert.deepEqual(await failure(container.items.create({ id: "2", pk: "a", v: 2 })), [408, 0]);
  assert.deepEqual(events((await drain(container, { ...allVersions, ...resume(now) })).items), ["create 2 →2"]);
});

test("reads follow writes by session token", async () => {
  const { container, seen } = await watched();
  const { headers } = await container.items.create({ id: "2", pk: "a", v: 2 });
  const sessionToken = headers["x-ms-session-token"];
  assert.match(sessionToken, /^\d+:-?\d+#\d+/);
  assert.equal((await container.item("2", "a").read({ sessionToken })).resource.v, 2);
  const ahead = sessionToken.replace(/#\d+/, "#999999");
  seen.length = 0;
  const late = await container.item("2", "a").read({ sessionToken: ahead });
  // The server refuses to be ahead of itself; the SDK then asks again without the token.
  assert.deepEqual([seen, late.resource.v], [[404, 200], 2]);
});

test("session consistency keeps its own tokens, also through a split", async () => {
  const { container } = await watched();
  const session = new CosmosClient({ endpoint: server.endpoint, key: KEY, consistencyLevel: "Session" });
  const same = session.database(container.database.id).container(container.id);
  for (const round of range(3)) {
    await same.items.upsert({ id: "1", pk: "a", v: round });
    assert.equal((await same.item("1", "a").read()).resource.v, round);
    for (const one of server.ranges(container)) server.split(container, one.id);
    assert.equal((await same.item("1", "a").read()).resource.v, round);
  }
});

test("TLS with a certificate of its own", async (t) => {
  const secure = await ownServer(t, "--tls", "self-signed");
  assert.ok(secure.endpoint.startsWith("https://"));
  const agent = new Agent({ rejectUnauthorized: false });
  t.after(() => agent.destroy());
  const client = new CosmosClient({ endpoint: secure.endpoint, key: KEY, agent });
  const { database } = await client.databases.create({ id: "tls" });
  const { container } = await database.containers.create({ id: "c", partitionKey: { paths: ["/pk"] } });
  for (const v of range(4)) await container.items.create({ id: `${v}`, pk: `k${v}`, v });
  const first = await drain(container, beginning());
  assert.deepEqual(versions(first.items).sort(), range(4).map((v) => `${v}=${v}`));
  secure.split(container, "0");
  await container.items.upsert({ id: "0", pk: "k0", v: 9 });
  assert.deepEqual(versions((await drain(container, resume(first.continuation))).items), ["0=9"]);
  const careful = new CosmosClient({ endpoint: secure.endpoint, key: KEY });
  await assert.rejects(careful.databases.create({ id: "no" }), /self.signed/);
});

test("a wrong key is 401", async () => {
  const stranger = new CosmosClient({ endpoint: server.endpoint, key: "d3Jvbmc=" });
  assert.equal((await failure(stranger.databases.create({ id: "never" })))[0], 401);
});
