// Lines of a stream. What Node.js has for it also ends lines where Unicode does, which JSON does not escape.

const LINE_FEED = 0x0a;

/** The lines of UTF-8 that a stream holds, without their line feeds. */
export async function* linesOf(source: AsyncIterable<Buffer>): AsyncGenerator<string, void, undefined> {
  let begun: Buffer[] = [];
  for await (const chunk of source) {
    let from = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, from)) {
      yield Buffer.concat([...begun, chunk.subarray(from, end)]).toString();
      [begun, from] = [[], end + 1];
    }
    begun.push(chunk.subarray(from));
  }
  const last = Buffer.concat(begun).toString();
  if (last !== "") yield last;
}
