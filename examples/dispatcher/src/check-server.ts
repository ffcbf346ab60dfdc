// Starts a server in a sandbox, dials it from a fenced command, watches it, stops it, and leaves nothing.
//
// Every step may run more than once: the platform retries a step whose answer was lost. So each call that has an
// effect carries a key made of the workflow's id and the step's name, and the substrate answers a repetition with
// what the first one did.

import { WorkflowEntrypoint, type WorkflowEvent, type WorkflowStep } from "cloudflare:workers";
import type { Env } from "./env";
import { expect, must } from "./facade";
import type { TimelineEvent } from "./timeline";

const PORT = 8080;
const POLLS = 3;
const BETWEEN_POLLS = "1 second";
/** The sandbox ends by itself after so long, whatever becomes of this workflow. */
const LIFETIME_MS = 10 * 60_000;
const RECIPE = { version: "1" };

const SERVER = `exec /opt/node/bin/node -e '
const server = require("node:http").createServer((request, response) => {
  console.log(request.method, request.url);
  response.end("hello from process " + process.pid + "\\n");
});
server.listen(${PORT}, "127.0.0.1", () => console.log("listening on ${PORT}"));
'`;

// The command also leaves a process behind, which the fence must kill while it spares the server.
const DIAL = `sleep 300 &
for attempt in $(seq 100); do
  curl -sf http://127.0.0.1:${PORT}/from-the-fence && exit 0
  sleep 0.05
done
exit 1`;
const DIAL_AFTERWARDS = `curl -sS http://127.0.0.1:${PORT}/afterwards`;
/** curl's exit code for "could not connect". */
const CURL_REFUSED = 7;

type Data = TimelineEvent["data"];
type Told<T> = { value: T; text: string; data?: Data };

export class CheckServer extends WorkflowEntrypoint<Env> {
  override async run(event: WorkflowEvent<unknown>, step: WorkflowStep): Promise<void> {
    const id = event.instanceId;
    const facade = this.env.FACADE;
    const timeline = this.env.TIMELINE.getByName(id);
    // The workflow's id is the sandbox's key: a UUID fits, and no other workflow can name this sandbox.
    const key = id;

    // One durable step: does its work once, records one line, keeps the value for the steps after it.
    const told = async <T extends Rpc.Serializable<T>>(name: string, work: () => Promise<Told<T>>): Promise<T> =>
      (await step.do(name, async () => {
        try {
          const { value, text, data } = await work();
          await timeline.record(name, text, data ?? {});
          return value;
        } catch (error) {
          await timeline.record(`${name} failed`, String(error), {});
          throw error;
        }
      })) as T;

    try {
      await told("ensure", async () => {
        const options = { lifetimeMs: LIFETIME_MS, labels: { workflow: id } };
        const done = must("ensure", await facade.ensureSandbox(key, RECIPE, { mode: "refuse" }, options));
        const minutes = Math.round((done.expiresAt - Date.now()) / 60_000);
        return {
          value: done.generation,
          text: `a sandbox is up, generation ${done.generation}; it ends by itself in ${minutes} min`,
          data: { key },
        };
      });

      const server = await told("start", async () => {
        const input = { recipe: RECIPE, command: SERVER, idempotencyKey: `${id}:start`, logPath: "server.log" };
        const done = must("start", await facade.startDetached(key, input));
        return { value: done.process.id, text: "the server is started, detached: it holds no grant, ever", data: { process: done.process.id } };
      });

      await told("dial", async () => {
        const input = { recipe: RECIPE, command: DIAL, idempotencyKey: `${id}:dial`, logPath: "dial.log", timeoutMs: 30_000 };
        const { receipt, killed, teardown } = must("dial", await facade.execUnderGrant(key, input));
        expect(receipt.exitCode === 0, `exit code 0 from the fenced command, got ${receipt.end} ${receipt.exitCode}: ${receipt.tail}`);
        expect(receipt.tail.includes("hello from process"), `the server's greeting, got: ${receipt.tail}`);
        expect(killed === 1, `the fence to kill what the command left and nothing else, it killed ${killed}`);
        return {
          value: receipt.durationMs,
          text: `a fenced command reached it on localhost in ${receipt.durationMs} ms`,
          data: { answer: receipt.tail.trim(), killed, teardown: teardown.mode, complete: teardown.evidence?.complete ?? false },
        };
      });

      for (let n = 1; n <= POLLS; n++) {
        await step.sleep(`before poll ${n}`, BETWEEN_POLLS);
        await told(`poll ${n}`, async () => {
          const { status } = must("status", await facade.detachedStatus(key, server));
          expect(status.state === "running", `a running server, it is ${JSON.stringify(status)}`);
          return { value: n, text: "the server is running: the fence spared it" };
        });
      }

      await told("stop", async () => {
        const { stopped, evidence, detail } = must("stop", await facade.stopDetached(key, server));
        expect(stopped, `the server to be stopped: ${detail ?? ""}`);
        return {
          value: stopped,
          text: "the server is stopped, on evidence",
          data: { killed: evidence?.killedCount ?? 0, survivors: evidence?.survivors.length ?? 0, elapsedMs: evidence?.elapsedMs ?? 0 },
        };
      });

      await told("status", async () => {
        const { status } = must("status", await facade.detachedStatus(key, server));
        expect(
          status.state === "gone" && status.reason === "stopped" && status.final,
          `gone, stopped, final; it is ${JSON.stringify(status)}`,
        );
        return { value: status.state, text: `its status is ${status.state}, ${status.reason}, final` };
      });

      await told("dial again", async () => {
        const input = { recipe: RECIPE, command: DIAL_AFTERWARDS, idempotencyKey: `${id}:dial-again`, logPath: "dial-again.log", timeoutMs: 30_000 };
        const { receipt } = must("dial again", await facade.execUnderGrant(key, input));
        expect(receipt.exitCode === CURL_REFUSED, `a refused connection, got exit code ${receipt.exitCode}: ${receipt.tail}`);
        return { value: receipt.exitCode, text: "nobody answers on its port any more", data: { answer: receipt.tail.trim() } };
      });
    } finally {
      // Also after a failed step: the sandbox would end by itself, but there is no reason to wait for that.
      await told("abort", async () => {
        const done = must("abort", await facade.abort(key));
        expect(done.containerGone, "the container to be gone");
        return { value: done.killed, text: "the sandbox is gone, its slot is free", data: { killed: done.killed } };
      });
    }
  }
}
