// Uploads a file with `tus-js-client`, stops in the middle, and continues in a second upload. Prints a report as JSON.
//
//     node tus_client.cjs URL FILE
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const { createRequire } = require("node:module");
// The packages are in the directory where this is started.
const tus = createRequire(path.join(process.cwd(), "package.json"))("tus-js-client");

const [endpoint, file] = process.argv.slice(2);
const PART_BYTES = 1_000_000;

const options = (further) => ({
  chunkSize: PART_BYTES,
  uploadSize: fs.statSync(file).size,
  metadata: { filename: path.basename(file) },
  retryDelays: [0, 500, 2000],
  onError: (error) => {
    console.error(String(error));
    process.exit(1);
  },
  ...further,
});

const first = new tus.Upload(fs.createReadStream(file), options({
  endpoint,
  onChunkComplete: async (_size, accepted) => {
    if (accepted !== 2 * PART_BYTES) return;
    await first.abort();
    let continuedAt = null;
    const second = new tus.Upload(fs.createReadStream(file), options({
      uploadUrl: first.url,
      onProgress: (sent) => {
        continuedAt ??= sent;
      },
      onSuccess: () => {
        console.log(JSON.stringify({ continued_at: continuedAt }));
        process.exit(0);
      },
    }));
    second.start();
  },
}));
first.start();
