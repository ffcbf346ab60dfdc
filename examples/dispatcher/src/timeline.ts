// What one workflow did, in order: one row a step. A step that is retried writes the row it wrote before.

import { DurableObject } from "cloudflare:workers";
import type { Env } from "./env";

export interface TimelineEvent {
  at: number;
  step: string;
  text: string;
  data: Record<string, string | number | boolean>;
}

type Row = { at: number; step: string; text: string; data: string };

export class Timeline extends DurableObject<Env> {
  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(
      "CREATE TABLE IF NOT EXISTS event (n INTEGER PRIMARY KEY, step TEXT UNIQUE, at INTEGER, text TEXT, data TEXT)",
    );
  }

  record(step: string, text: string, data: TimelineEvent["data"]): void {
    this.ctx.storage.sql.exec(
      "INSERT INTO event (step, at, text, data) VALUES (?, ?, ?, ?) ON CONFLICT (step) DO NOTHING",
      step,
      Date.now(),
      text,
      JSON.stringify(data),
    );
  }

  read(): TimelineEvent[] {
    const rows = this.ctx.storage.sql.exec<Row>("SELECT at, step, text, data FROM event ORDER BY n").toArray();
    return rows.map((row) => ({ ...row, data: JSON.parse(row.data) }));
  }
}
