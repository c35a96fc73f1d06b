/** HTTP/2 sessions whose streams always end: with a reply, or with an error. */

import type { ClientHttp2Stream, OutgoingHttpHeaders } from "node:http2";
import { constants } from "node:http2";

import { Code, ConnectError } from "@connectrpc/connect";
import { Http2SessionManager } from "@connectrpc/connect-node";

/** Text of the error for a stream that the server ended without a reply. */
export const NO_REPLY = "the server ended the stream without a reply";

/**
 * Sessions of `@connectrpc/connect-node`, which settles a request at the headers of the reply or at an error of the stream.
 * A server that ends the stream before with RST_STREAM and NO_ERROR causes neither, and the request would wait for its
 * deadline. NO_ERROR is allowed only after a whole reply (RFC 9113, section 8.1).
 */
export class SessionManager extends Http2SessionManager {
  override async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: Parameters<Http2SessionManager["request"]>[3],
  ): Promise<ClientHttp2Stream> {
    const { host } = new URL(this.authority);
    // Node.js leaves out the brackets of an IPv6 address, which servers refuse (RFC 3986, section 3.2.2).
    const bracketed = host.startsWith("[") ? { ":authority": host } : {};
    const stream = await super.request(method, path, { ...headers, ...bracketed }, options);
    let hasReply = false;
    stream.once("response", () => (hasReply = true));
    stream.once("close", () => {
      if (hasReply || stream.rstCode !== constants.NGHTTP2_NO_ERROR) return;
      // The library can be notified only by this event, since a closed stream cannot be destroyed with an error.
      stream.emit("error", new ConnectError(NO_REPLY, Code.Unavailable));
    });
    return stream;
  }
}
