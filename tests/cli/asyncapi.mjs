// Prints each problem that the parser of the AsyncAPI initiative finds in the document on standard input, one a line.
// Mere recommendations, such as a later version of the specification, are left out.

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
