/** Generators that end while a value is awaited. */

/** The generator, which calls `cancel` when it is left while `next` is pending. `return` and `throw` of a plain generator
 * would wait for that value, so they would end nothing before it arrives. */
export function cancellable<Value>(
  generator: AsyncGenerator<Value, void, undefined>,
  cancel: () => void,
): AsyncGenerator<Value, void, undefined> {
  const next = generator.next.bind(generator);
  const [leave, fail] = [generator.return.bind(generator), generator.throw.bind(generator)];
  let pending = 0;
  let isCancelled = false;
  const cancelPending = (): void => {
    if (pending === 0) return;
    isCancelled = true;
    cancel();
  };
  return Object.assign(generator, {
    async next(): Promise<IteratorResult<Value, void>> {
      pending++;
      try {
        return await next();
      } catch (error) {
        // The reader who left needs no error of the cancellation.
        if (!isCancelled) throw error;
        return { done: true, value: undefined };
      } finally {
        pending--;
      }
    },
    return(value: void | PromiseLike<void>): Promise<IteratorResult<Value, void>> {
      cancelPending();
      return leave(value);
    },
    throw(error: unknown): Promise<IteratorResult<Value, void>> {
      cancelPending();
      return fail(error);
    },
  });
}
