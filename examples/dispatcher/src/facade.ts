// The substrate as this Worker uses it, and what to do with a "no".

import { NonRetryableError } from "cloudflare:workflows";
import type { Outcome, RefusalKind } from "../../../contract/ringfence";

export type { Facade } from "../../../contract/ringfence";

/** Refusals that pass by themselves: the step is tried again. All others are final. */
const PASSING: readonly RefusalKind[] = ["admission-refused", "fence-busy", "sandbox-unavailable"];

/** The answer, or an error that tells the workflow whether trying again makes sense. */
export function must<T extends object>(what: string, outcome: Outcome<T>): T {
  if (outcome.ok) return outcome;
  const text = `${what}: ${outcome.kind}: ${outcome.message}`;
  throw PASSING.includes(outcome.kind) ? new Error(text) : new NonRetryableError(text);
}

/** For what a retry cannot mend: the substrate answered, and the answer is not what this workflow needs. */
export function expect(holds: boolean, what: string): asserts holds {
  if (!holds) throw new NonRetryableError(`expected ${what}`);
}
