// What every test needs: the server and the command against it, a client, containers, and readers of change feeds.
import { execFile, execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import assert from "node:assert/strict";
import { ChangeFeedMode, ChangeFeedStartFrom, CosmosClient } from "@azure/cosmos";

const BINARY = process.env.CHANGEFEED_BIN;

// The emulator's public key, which the server takes unless it is told another.
export const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/** An endpoint and what an administrator can do to it. */
export class Server {
  constructor(endpoint) {
    this.endpoint = endpoint;
  }

  command(verb, ...options) {
    return execFileSync(BINARY, [verb, "--store", this.endpoint, ...options], { encoding: "utf8", timeout: 30_000 });
  }

  ranges(container) {
    return this.#of(container, "ranges");
  }

  /** Splits a range and returns its two children. */
  split(container, id) {
    return this.#of(container, "split", "--range", id);
  }

  /** Merges two neighbours and returns what they became. */
  merge(container, left, right) {
    return this.#of(container, "merge", "--ranges", `${left},${right}`)[0];
  }

  /** The same commands for tests in which other things go on meanwhile. */
  async later(container, verb, ...options) {
    const where = ["--store", this.endpoint, "--container", `${container.database.id}/${container.id}`, "--json"];
    return JSON.parse((await promisify(execFile)(BINARY, [verb, ...where, ...options])).stdout);
  }

  fault(...options) {
    this.command("fault", ...options);
  }

  throttle(seconds, retryAfterMs) {
    this.command("throttle", "--seconds", String(seconds), "--retry-after-ms", String(retryAfterMs));
  }

  #of(container, verb, ...options) {
    const name = `${container.database.id}/${container.id}`;
    return JSON.parse(this.command(verb, "--container", name, ...options, "--json"));
  }
}

/** Starts a server of one test, which ends with it. */
export async function ownServer(t, ...options) {
  const folder = mkdtempSync(join(tmpdir(), "changefeed-"));
  const process = spawn(BINARY, ["serve", "--store", folder, "--listen", "127.0.0.1:0", "--ranges", "2", "--previous-images", ...options], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => process.once("exit", (code) => resolve(code)));
  t.after(async () => {
    process.kill("SIGTERM");
    assert.equal(await ended, 0);
    rmSync(folder, { recursive: true });
  });
  const { value } = await createInterface({ input: process.stdout })[Symbol.asyncIterator]().next();
  const ready = JSON.parse(value);
  assert.equal(ready.event, "ready");
  return new Server(ready.endpoint);
}

export const server = new Server(process.env.COSMOS_ENDPOINT);
export const client = new CosmosClient({ endpoint: server.endpoint, key: KEY });
export const { database } = await client.databases.createIfNotExists({ id: "javascript" });

/** Makes a container keyed by `/pk` unless told otherwise; it begins with two ranges. */
export async function newContainer(definition = {}) {
  const { container } = await database.containers.create({
    id: `c-${randomUUID()}`,
    partitionKey: { paths: ["/pk"], kind: "Hash", version: 2 },
    ...definition,
  });
  return container;
}

/** The status and substatus with which a promise fails. */
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return [error.code, error.substatus ?? 0];
  }
  assert.fail("it should have been refused");
}

/** Reads a feed until the SDK says that there is no more for now. */
export async function drain(container, options) {
  return readOn(container.items.getChangeFeedIterator(options));
}

export async function readOn(iterator) {
  const pages = [];
  for (;;) {
    const response = await iterator.readNext();
    if (response.statusCode === 304) {
      return { pages, items: pages.flat(), continuation: response.continuationToken };
    }
    assert.equal(response.statusCode, 200);
    assert.equal(response.count, response.result.length);
    pages.push(response.result);
  }
}

export const beginning = (scope) => ({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(scope) });
export const fromNow = (scope) => ({ changeFeedStartFrom: ChangeFeedStartFrom.Now(scope) });
export const fromTime = (moment, scope) => ({ changeFeedStartFrom: ChangeFeedStartFrom.Time(moment, scope) });
export const resume = (token) => ({ changeFeedStartFrom: ChangeFeedStartFrom.Continuation(token) });
export const allVersions = { changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes };

/** `id=v` of each item, in the order of arrival. */
export const versions = (items) => items.map((item) => `${item.id}=${item.v}`);

/** `operation id before→now` of each change, in the order of arrival. */
export const events = (changes) =>
  changes.map(({ current, previous, metadata }) => {
    const id = current?.id ?? previous.id;
    return `${metadata.operationType} ${id} ${previous?.v ?? ""}→${current?.v ?? ""}`;
  });

/** What came for each partition key, in order. */
export function byKey(items, what) {
  const groups = {};
  for (const item of items) {
    const body = item.metadata ? (item.current?.id ? item.current : item.previous) : item;
    (groups[body.pk] ??= []).push(...what([item]));
  }
  return groups;
}

/** `id=v` of everything that is there, sorted. */
export async function present(container) {
  const { resources } = await container.items.readAll().fetchAll();
  return versions(resources).sort();
}

export const range = (n) => [...Array(n).keys()];
