// The dispatcher's HTTP: POST /run starts a workflow, GET /run/{id} tells what it did so far.

import type { Env } from "./env";

export { CheckServer } from "./check-server";
export { Timeline } from "./timeline";

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (pathname === "/run" && request.method === "POST") {
      const instance = await env.CHECK_SERVER.create();
      return Response.json({ id: instance.id }, { status: 202 });
    }
    const [, id] = /^\/run\/([A-Za-z0-9_-]+)$/.exec(pathname) ?? [];
    if (id !== undefined && request.method === "GET") {
      const events = await env.TIMELINE.getByName(id).read();
      const status = await (await env.CHECK_SERVER.get(id)).status();
      return Response.json({ status: status.status, error: status.error ?? null, events });
    }
    return Response.json({ error: "POST /run, GET /run/{id}" }, { status: 404 });
  },
} satisfies ExportedHandler<Env>;
