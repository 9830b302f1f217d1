// Walking over the pages of lists.

import { int32, type Integer, PAGE_SIZES } from "./arguments.js";
import { callOptions, type CallOptions, type Connection, type Operation } from "./connection.js";

/** What a list takes. The timeout holds for each page. */
export interface ListOptions extends CallOptions {
  /** The most items of one page, up to 1,000; 0 for the server's default of 100. */
  readonly pageSize?: Integer | undefined;
}

/** The items of all pages, each page read when the one before is used up. All are of the store in use at the call. */
export function items<Item>(
  connection: Connection,
  options: ListOptions,
  page: (operation: Operation, pageSize: number, pageToken: string) => Promise<readonly [Iterable<Item>, string]>,
): AsyncGenerator<Item, void, undefined> {
  const pageSize = int32(options.pageSize ?? 0, "pageSize", PAGE_SIZES);
  const { metadata } = connection;
  const each = callOptions(options);
  return (async function* () {
    // The last page is that without a next one, not an empty one.
    for (let token: string | undefined = ""; token !== undefined; ) {
      const [found, next]: readonly [Iterable<Item>, string] = await page(connection.operation(each, metadata), pageSize, token);
      yield* found;
      token = next || undefined;
    }
  })();
}
