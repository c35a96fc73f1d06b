/** Files that appear at their path only when they are complete. */

import { randomUUID } from "node:crypto";
import { readlink, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, isAbsolute, sep } from "node:path";

/** Lets `write` make a file with another name in the directory of `target`, which it then replaces. After an error, the
 * target is as it was. A link stays: the file behind it is replaced. A pipe or a device is refused. */
export async function replaceFile(target: string, write: (partial: string) => Promise<void>): Promise<void> {
  const kind = await unlessMissing(stat(target));
  // The rename would put a file in the place of a pipe or of a device such as `/dev/null`.
  if (kind !== undefined && !kind.isFile() && !kind.isDirectory()) throw notRegular(target);
  const file = await linkedFile(target);
  // The same directory, because a rename is only atomic within one file system. The name of the target is not part of the
  // name: with more it could be too long.
  const partial = `${dirname(file)}${sep}.drayage-${randomUUID()}`;
  try {
    await write(partial);
    await rename(partial, file);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

/** The path behind all links, also where it does not exist yet. */
async function linkedFile(path: string): Promise<string> {
  const real = await unlessMissing(realpath(path));
  if (real !== undefined) return real;
  const link = await readlink(path).catch(() => undefined);
  if (link === undefined) return path;
  // Not `join`, which would resolve `..` without the links before it. The recursion ends: a circle of links is an error.
  return linkedFile(isAbsolute(link) ? link : `${dirname(path)}${sep}${link}`);
}

async function unlessMissing<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await result;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

function notRegular(path: string): Error {
  const error = new Error(`EEXIST: the target exists and is not a regular file: ${path}`);
  return Object.assign(error, { code: "EEXIST", path });
}

/** The code of an error of Node.js; empty without one. */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}
