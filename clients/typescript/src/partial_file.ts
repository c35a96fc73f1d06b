/** Files that appear at their path only when they are complete. */

import { randomUUID } from "node:crypto";
import { rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";

/** Lets `write` make a file with another name in the directory of `target`, which it then replaces. After an error, the
 * target is as it was. */
export async function replaceFile(target: string, write: (partial: string) => Promise<void>): Promise<void> {
  // The same directory, because a rename is only atomic within one file system. The name of the target is not part of the
  // name: with more it could be too long.
  const partial = join(dirname(target), `.drayage-${randomUUID()}`);
  try {
    await write(partial);
    await rename(partial, target);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}
