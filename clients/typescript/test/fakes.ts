/** Small servers that misbehave intentionally, on free ports of the loopback address. */

import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter, type HandlerContext } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

import { Egress, FaultSchema, type FetchReplySchema, Sandboxes } from "../src/v1/index.js";

/** The reply of a fake endpoint to request number `number`, counted from 1. */
export type FetchHandler = (
  number: number,
  url: string,
  context: HandlerContext,
) => MessageInitShape<typeof FetchReplySchema> | Promise<MessageInitShape<typeof FetchReplySchema>>;

/** Answers `Egress.Fetch` with one function, `Sandboxes.Remove` with its errors or success, and `Sandboxes.Stat` with an
 * empty entry. Keeps the metadata of each. */
export class FakeEndpoint {
  readonly seen: Headers[] = [];
  readonly sessions = new Set<ServerHttp2Session>();
  readonly #server: Http2Server;

  private constructor(routes: (router: ConnectRouter, seen: Headers[]) => void) {
    this.#server = createHttp2Server(connectNodeAdapter({ routes: (router) => routes(router, this.seen) }));
    this.#server.on("session", (session) => this.sessions.add(session));
  }

  static start(handle: FetchHandler): Promise<FakeEndpoint> {
    return FakeEndpoint.serve((router, seen) => {
      router.service(Egress, {
        fetch: (request, context) => {
          seen.push(context.requestHeader);
          return handle(seen.length, request.url, context);
        },
      });
      router.service(Sandboxes, {
        remove: async (_request, context) => {
          seen.push(context.requestHeader);
          await handle(seen.length, "", context);
          return {};
        },
        stat: (_request, context) => {
          seen.push(context.requestHeader);
          return {};
        },
      });
    });
  }

  /** Serves the methods of `routes`. */
  static async serve(routes: (router: ConnectRouter, seen: Headers[]) => void): Promise<FakeEndpoint> {
    const endpoint = new FakeEndpoint(routes);
    await new Promise<void>((resolve) => endpoint.#server.listen(0, "127.0.0.1", resolve));
    return endpoint;
  }

  get target(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Ends every connection immediately, with the requests on it. */
  breakConnections(): void {
    for (const session of this.sessions) session.destroy();
  }

  stop(): void {
    this.breakConnections();
    this.#server.close();
  }
}

/** A failure as the services report it: a status with the fault in its details. */
export function refusal(code: Code, fault: MessageInitShape<typeof FaultSchema>): ConnectError {
  return new ConnectError(fault.message ?? "", code, undefined, [{ desc: FaultSchema, value: fault }]);
}

/** A store that answers with one function. */
export class FakeStore {
  readonly url: string;
  readonly #close: () => void;

  private constructor(url: string, close: () => void) {
    this.url = url;
    this.#close = close;
  }

  static async start(
    handle: (number: number, request: IncomingMessage, response: ServerResponse) => void,
  ): Promise<FakeStore> {
    let number = 0;
    const server = createHttpServer((request, response) => handle(++number, request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    return new FakeStore(`http://127.0.0.1:${port}/object`, () => {
      server.closeAllConnections();
      server.close();
    });
  }

  stop(): void {
    this.#close();
  }
}
