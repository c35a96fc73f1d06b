/** Checks the names of options, for callers without a compiler: a misspelled option would be ignored without notice. */

import { wrongType } from "./fields.js";
import type { CallOptions, RetryPolicy, Tls, WaitOptions } from "./options.js";

/** Every name of a kind of options. The compiler refuses a name that is missing or that does not exist. */
export type OptionNames<Options> = Readonly<Record<keyof Options, true>>;

export const CALL_OPTIONS: OptionNames<CallOptions> = {
  timeoutMs: true,
  signal: true,
  operationId: true,
  session: true,
  app: true,
  traceparent: true,
  tracestate: true,
  retry: true,
};
export const WAIT_OPTIONS: OptionNames<WaitOptions> = { timeoutMs: true, signal: true };
const RETRY_POLICY: OptionNames<RetryPolicy> = {
  maxAttempts: true,
  firstDelayMs: true,
  maxDelayMs: true,
  maxUnavailableDelayMs: true,
};
const TLS_OPTIONS: OptionNames<Tls> = { caCertificate: true, certificate: true, privateKey: true, serverName: true };

/** Throws a `TypeError` for options that are not an object, and for the first option that does not exist. `name`: that of
 * the options in the message, such as `settings`. */
export function checkOptionNames<Options extends object>(name: string, options: Options, names: OptionNames<Options>): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) throw wrongType(name, "an object", options);
  for (const option of Object.keys(options)) {
    if (!Object.hasOwn(names, option)) {
      throw new TypeError(`\`${name}\` has no option \`${option}\`; its options are ${Object.keys(names).join(", ")}`);
    }
  }
}

/** Checks the names of options that have a policy of retries or TLS in them. */
export function checkNestedOptionNames(options: { readonly retry?: RetryPolicy; readonly tls?: Tls }): void {
  if (options.retry !== undefined) checkOptionNames("retry", options.retry, RETRY_POLICY);
  if (options.tls !== undefined) checkOptionNames("tls", options.tls, TLS_OPTIONS);
}
