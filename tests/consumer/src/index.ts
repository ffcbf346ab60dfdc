// The fixture consumer: makes each way a Worker can be bound to the substrate reachable over loopback HTTP.
//
//   POST /rpc/BINDING/METHOD             arguments as a JSON array -> {returned} or {threw}
//   POST /object/BINDING/NAME/METHOD     the same, straight at a Durable Object
//   GET  /object-id/BINDING/NAME         the object's id, which its container's name holds
//   ANY  /fetch/BINDING/PATH             a plain fetch through a service binding
//   POST /fetch-url/BINDING              the same, of the URL in the body
//
// It holds no state and decides nothing, so what a test sees is what the substrate said.

type Env = Record<string, unknown>;
type Callable = Record<string, (...args: unknown[]) => Promise<unknown>>;

async function call(target: Callable, method: string, request: Request): Promise<Response> {
  const args = (await request.json()) as unknown[];
  try {
    return Response.json({ returned: (await target[method](...args)) ?? null });
  } catch (thrown) {
    const error = thrown as Error;
    return Response.json({ threw: { name: error.name, message: error.message } });
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const url = new URL(request.url);
    const [, kind, binding, ...rest] = url.pathname.split("/").map(decodeURIComponent);
    switch (kind) {
      case "rpc":
        return call(env[binding] as Callable, rest[0], request);
      case "object": {
        const objects = env[binding] as DurableObjectNamespace;
        return call(objects.get(objects.idFromName(rest[0])) as unknown as Callable, rest[1], request);
      }
      case "object-id": {
        const objects = env[binding] as DurableObjectNamespace;
        return new Response(objects.idFromName(rest[0]).toString());
      }
      case "fetch": {
        const target = new URL(`/${rest.join("/")}`, url);
        return (env[binding] as Fetcher).fetch(new Request(target, request));
      }
      case "fetch-url":
        return (env[binding] as Fetcher).fetch(await request.text());
      default:
        return new Response(`the fixture has nothing named ${kind}`, { status: 404 });
    }
  },
};
