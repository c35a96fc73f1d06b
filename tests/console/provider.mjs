// An independent identity provider (`oidc-provider`), for the login of the console.
//
//     node provider.mjs ID SECRET
//
// Prints its issuer, reads the redirect URI of the console from standard input, and then serves until standard input
// closes or has another line.
import http from "node:http";
import path from "node:path";
import readline from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages are in the directory where this is started.
const load = createRequire(path.join(process.cwd(), "package.json"));
const { Provider } = await import(pathToFileURL(load.resolve("oidc-provider")));

const [id, secret] = process.argv.slice(2);
const server = http.createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
console.log(issuer);
const { value: redirect } = await lines.next();

// The name that a person types on the provider's page is the account; `ada` is in a group.
const provider = new Provider(issuer, {
  clients: [{
    client_id: id,
    client_secret: secret,
    redirect_uris: [redirect],
    post_logout_redirect_uris: [redirect.replace(/return$/, "ended")],
  }],
  claims: { openid: ["sub"], profile: ["name", "groups"] },
  // The default of the package: claims of scopes are only at the userinfo endpoint.
  conformIdTokenClaims: true,
  findAccount: (_, account) => ({
    accountId: account,
    claims: () => ({ sub: account, name: `Person ${account}`, groups: account === "ada" ? ["ops"] : [] }),
  }),
});
server.on("request", provider.callback());
console.log("serving");
await lines.next();
process.exit(0);
