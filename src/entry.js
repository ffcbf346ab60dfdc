// The Worker's only JavaScript: it names what is exported and hands environment, context and arguments to Rust.
// Nothing is decided here. Only the methods written out below can be reached over RPC; the Rust side's own exports
// (and what wasm-bindgen adds to its classes) stay behind them.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as ringfence from "../build/index.js";

const rust = ({ ctx, env }) => new ringfence.default(ctx, env);

/** The HTTP face. */
export default {
  fetch(request, env, ctx) {
    return rust({ ctx, env }).fetch(request);
  },
};

/** The RPC face. A consumer binds to it with `entrypoint = "Facade"` and `props = { consumer = "its-name" }`. */
export class Facade extends WorkerEntrypoint {
  ensureSandbox(...args) { return facade(this, "ensureSandbox", args); }
  execUnderGrant(...args) { return facade(this, "execUnderGrant", args); }
  startDetached(...args) { return facade(this, "startDetached", args); }
  detachedStatus(...args) { return facade(this, "detachedStatus", args); }
  stopDetached(...args) { return facade(this, "stopDetached", args); }
  detachedList(...args) { return facade(this, "detachedList", args); }
  detachedOutput(...args) { return facade(this, "detachedOutput", args); }
  detachedInput(...args) { return facade(this, "detachedInput", args); }
  readFile(...args) { return facade(this, "readFile", args); }
  checkpoint(...args) { return facade(this, "checkpoint", args); }
  abort(...args) { return facade(this, "abort", args); }
  denials(...args) { return facade(this, "denials", args); }
  events(...args) { return facade(this, "events", args); }
  artifacts(...args) { return facade(this, "artifacts", args); }
  artifact(...args) { return facade(this, "artifact", args); }
  admissionEnqueue(...args) { return facade(this, "admissionEnqueue", args); }
  admissionAttempt(...args) { return facade(this, "admissionAttempt", args); }
  admissionRelease(...args) { return facade(this, "admissionRelease", args); }
  poolStatus(...args) { return facade(this, "poolStatus", args); }
}

const facade = (entrypoint, method, args) => rust(entrypoint).facade(entrypoint.env, entrypoint.ctx, method, args);

/** Where every outbound request of a sandbox arrives. */
export class Egress extends WorkerEntrypoint {
  fetch(request) {
    return rust(this).egress(this.env, this.ctx, request);
  }
}

/** One object per consumer's key. */
export class Sandbox extends DurableObject {
  #object;
  constructor(ctx, env) {
    super(ctx, env);
    this.#object = new ringfence.Sandbox(ctx, env);
  }
  invoke(request) { return this.#object.invoke(request); }
  alarm() { return this.#object.alarm(); }
}

/** One object per deployment. */
export class Admission extends DurableObject {
  #object;
  constructor(ctx, env) {
    super(ctx, env);
    this.#object = new ringfence.Admission(ctx, env);
  }
  invoke(request) { return this.#object.invoke(request); }
  alarm() { return this.#object.alarm(); }
}
