// Times calls of the facade from inside a consumer Worker, so that wrangler's HTTP front is not in the figures.
//
// POST /measure {"calls": [...], "rounds": N, "group": G}: in each round, each call G times in a row, so that the kinds
// are interleaved and a slow minute of the machine meets them all. The runtime's clock has steps of a millisecond:
// the mean of a group is the sample for p50, the single call for p99.

import type { Facade } from "../../contract/ringfence";
import type { PlainFacade } from "./plain";

export { Plain, PlainFacade } from "./plain";

interface Env {
  FACADE: Facade;
  PLAIN: Service<PlainFacade>;
}

interface Measure {
  calls: string[];
  rounds: number;
  group: number;
}

interface Samples {
  groups: number[];
  singles: number[];
}

const KEY = "bench";
const RECIPE = { version: "1" };
/** Longer than any run of the bench. */
const LIFETIME_MS = 3_600_000;

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { pathname } = new URL(request.url);
    const bench = new Bench(env, crypto.randomUUID());
    if (pathname === "/measure") return Response.json(await bench.measure(await request.json<Measure>()));
    if (pathname === "/end") return Response.json(await bench.end());
    return new Response("POST /measure or /end\n", { status: 404 });
  },
} satisfies ExportedHandler<Env>;

class Bench {
  readonly #env: Env;
  readonly #run: string;
  #running = "";
  #exited = "";
  #n = 0;

  constructor(env: Env, run: string) {
    this.#env = env;
    this.#run = run;
  }

  async measure({ calls, rounds, group }: Measure): Promise<Record<string, Samples>> {
    await this.#prepare();
    const samples: Record<string, Samples> = Object.fromEntries(calls.map((name) => [name, { groups: [], singles: [] }]));
    // The first round warms every path and is thrown away.
    for (let round = 0; round <= rounds; round++) {
      for (const name of calls) {
        const { groups, singles } = samples[name]!;
        const call = this.#call(name);
        const times: number[] = [];
        const begun = Date.now();
        for (let i = 0; i < group; i++) {
          const before = Date.now();
          await call();
          times.push(Date.now() - before);
        }
        const mean = (Date.now() - begun) / group;
        await this.#tidy(name);
        if (round === 0) continue;
        groups.push(mean);
        singles.push(...times);
      }
    }
    ok(await this.#env.FACADE.stopDetached(KEY, this.#running));
    return samples;
  }

  async end(): Promise<unknown> {
    await this.#env.PLAIN.destroy();
    return this.#env.FACADE.abort(KEY);
  }

  #call(name: string): () => Promise<unknown> {
    const facade = this.#env.FACADE;
    switch (name) {
      case "plain":
        return () => this.#env.PLAIN.hello();
      case "exec":
        return async () => {
          const { receipt } = ok(await facade.execUnderGrant(KEY, { ...this.#input("true"), timeoutMs: 30_000 }));
          if (receipt.deduped || receipt.exitCode !== 0) throw new Error(JSON.stringify(receipt));
        };
      case "start":
        return async () => {
          const done = ok(await facade.startDetached(KEY, this.#input("exec sleep 600")));
          this.#started.push(done.process.id);
        };
      case "status-running":
        return async () => expectState(ok(await facade.detachedStatus(KEY, this.#running)).status.state, "running");
      case "status-exited":
        return async () => expectState(ok(await facade.detachedStatus(KEY, this.#exited)).status.state, "exited");
      case "abort-boot":
        return async () => {
          ok(await facade.abort(KEY));
          await this.#ensure();
        };
      default:
        throw new Error(`no call named ${name}`);
    }
  }

  #started: string[] = [];

  /** What a group of starts left is stopped outside the measured time. */
  async #tidy(name: string): Promise<void> {
    if (name !== "start") return;
    for (const id of this.#started.splice(0)) ok(await this.#env.FACADE.stopDetached(KEY, id));
  }

  async #prepare(): Promise<void> {
    await this.#env.PLAIN.boot();
    await this.#ensure();
    this.#running = ok(await this.#env.FACADE.startDetached(KEY, this.#input("exec sleep 3600"))).process.id;
    this.#exited = ok(await this.#env.FACADE.startDetached(KEY, this.#input("true"))).process.id;
    for (let i = 0; i < 200; i++) {
      const { status } = ok(await this.#env.FACADE.detachedStatus(KEY, this.#exited));
      if (status.state === "exited") return;
      await scheduler.wait(10);
    }
    throw new Error("`true` did not exit");
  }

  async #ensure(): Promise<void> {
    ok(await this.#env.FACADE.ensureSandbox(KEY, RECIPE, { mode: "refuse" }, { lifetimeMs: LIFETIME_MS }));
  }

  #input(command: string) {
    return { recipe: RECIPE, command, idempotencyKey: `${this.#run}:${this.#n++}`, logPath: "bench.log" };
  }
}

function ok<T extends { ok: boolean }>(outcome: T): Extract<T, { ok: true }> {
  if (!outcome.ok) throw new Error(JSON.stringify(outcome));
  return outcome as Extract<T, { ok: true }>;
}

function expectState(state: string, wanted: string): void {
  if (state !== wanted) throw new Error(`expected ${wanted}, it is ${state}`);
}
