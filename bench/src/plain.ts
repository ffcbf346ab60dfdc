// The baseline: an object with a container and nothing else. The same supervisor answers in it, so that only the
// substrate's own work differs.

import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";

const PORT = 7117;
const KEY = "0".repeat(64);
const BOOT = { attempts: 200, pauseMs: 25 };

export class Plain extends DurableObject {
  async boot(): Promise<void> {
    const container = this.ctx.container!;
    if (container.running) return;
    container.start({
      enableInternet: false,
      env: {
        RINGFENCE_BOOT_KEY: KEY,
        RINGFENCE_GENERATION: "1",
        RINGFENCE_DEADLINE_MS: String(Date.now() + 3_600_000),
      },
    });
    await container.setInactivityTimeout(600_000);
    for (let attempt = 0; attempt < BOOT.attempts; attempt++) {
      try {
        await this.hello();
        return;
      } catch {
        await scheduler.wait(BOOT.pauseMs);
      }
    }
    throw new Error("the baseline's container did not answer");
  }

  /** One round trip to the container's port. */
  async hello(): Promise<void> {
    await this.#fetch("/v1/hello");
  }

  async destroy(): Promise<void> {
    await this.ctx.container!.destroy();
  }

  async #fetch(path: string): Promise<void> {
    const response = await this.ctx.container!.getTcpPort(PORT).fetch(`http://container${path}`, {
      headers: { "x-ringfence-boot-key": KEY },
    });
    const body = await response.text();
    if (!response.ok) throw new Error(`${path}: HTTP ${response.status}: ${body}`);
  }
}

export class PlainFacade extends WorkerEntrypoint<{ PLAIN_OBJECT: DurableObjectNamespace<Plain> }> {
  #object() {
    return this.env.PLAIN_OBJECT.getByName("plain");
  }
  boot(): Promise<void> {
    return this.#object().boot();
  }
  hello(): Promise<void> {
    return this.#object().hello();
  }
  destroy(): Promise<void> {
    return this.#object().destroy();
  }
}
