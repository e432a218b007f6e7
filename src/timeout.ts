/** Waits for the work, at most this long. @throws the `error` if it takes longer */
export async function withTimeout<T>(milliseconds: number, work: Promise<T>, error: () => Error): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(error()), milliseconds);
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer));
}
