// Prints each problem that the parser of the AsyncAPI initiative finds in the document of standard input, one a line.
// What it recommends without calling it a problem, such as a later version of the specification, is left out.

import { Parser } from "@asyncapi/parser";
import { text } from "node:stream/consumers";

/** The levels of Spectral: 0 is an error, 1 a warning. */
const WARNING = 1;

const { document, diagnostics } = await new Parser().parse(await text(process.stdin));
for (const { severity, path, message } of diagnostics) {
  if (severity <= WARNING) console.log(`${path.join(".")}: ${message}`);
}
if (document === undefined) console.log("the document was not read");
else if (document.channels().isEmpty()) console.log("the document has no channels");
