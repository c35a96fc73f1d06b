// Counts the tokens of a text file with two vocabularies. Prints the counts as JSON.
//
//     node count_tokens.mjs FILE
import { readFileSync } from "node:fs";
import { encode as encodeCl100k } from "gpt-tokenizer/encoding/cl100k_base";
import { encode as encodeO200k } from "gpt-tokenizer/encoding/o200k_base";

const text = readFileSync(process.argv[2], "utf8");
console.log(JSON.stringify({
  cl100k_base: encodeCl100k(text).length,
  o200k_base: encodeO200k(text).length,
}));
