// What wrangler.toml binds.

import type { Facade } from "./facade";
import type { Timeline } from "./timeline";

export interface Env {
  FACADE: Facade;
  CHECK_SERVER: Workflow;
  TIMELINE: DurableObjectNamespace<Timeline>;
}
