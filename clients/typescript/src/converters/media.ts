// Media in the forms that providers' JSON has for them: base64 text, data URLs, URLs and file ids.

import type { MediaPart } from "../messages.js";

/** The type of an image that is given by reference, whose exact type is not said. */
export const ANY_IMAGE = "image/*";

/** The bytes of base64 text; undefined when encoding them would not give exactly that text. */
export function base64Bytes(text: string): Uint8Array | undefined {
  const bytes = Buffer.from(text, "base64");
  return bytes.toString("base64") === text ? new Uint8Array(bytes) : undefined;
}

/** The base64 text of bytes. */
export function base64Text(data: Uint8Array): string {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");
}

/** A media part as it comes from a server. */
export function mediaByUri(mediaType: string, uri: string): MediaPart {
  return { type: "media", mediaType, uri, size: 0 };
}

/** A media part as it comes from a server. */
export function mediaOfData(mediaType: string, data: Uint8Array): MediaPart {
  return { type: "media", mediaType, data, size: 0 };
}

/** The media in a base64 data URL; undefined for other URLs, and where `dataUrl` would not give exactly that one. */
export function dataUrlMedia(url: string): MediaPart | undefined {
  const found = /^data:([^;,]*);base64,(.*)$/s.exec(url);
  const data = found === null ? undefined : base64Bytes(found[2]!);
  return found === null || data === undefined ? undefined : mediaOfData(found[1]!, data);
}

/** The data URL of bytes. */
export function dataUrl(mediaType: string, data: Uint8Array): string {
  return `data:${mediaType};base64,${base64Text(data)}`;
}

/** Whether a reference is a URL, and not a provider's file id. */
export function isUrl(uri: string): boolean {
  return uri.includes(":");
}

/** A text for media that a format has no form for. */
export function mention(media: MediaPart): string {
  const kind = media.mediaType || "file";
  return media.data === undefined ? `[${kind}: ${media.uri ?? ""}]` : `[${kind}, ${media.data.length} bytes]`;
}
