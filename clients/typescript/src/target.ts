// Whom a client talks to, how, and how long it waits.

import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";

import { type ChannelCredentials, type ClientOptions as ChannelOptions, credentials, Metadata } from "@grpc/grpc-js";

import { kindOf, milliseconds, string } from "./arguments.js";
import { DEFAULT_LOGGER, type Logger } from "./log.js";
import { FIRST_PAUSE_MS, LONGEST_PAUSE_MS } from "./retries.js";

/** The address of a server on this machine, started without settings. */
export const DEFAULT_ADDRESS = "127.0.0.1:7600";
/** Milliseconds that a call may take, its retries included. */
export const DEFAULT_TIMEOUT_MS = 30_000;

/** How a client is set up. */
export interface ClientOptions {
  /** The milliseconds that one operation may take, 30,000 by default; each operation can be given its own. */
  readonly timeoutMs?: number | undefined;
  /** The name of the server's store to use; without one the server's default. */
  readonly store?: string | undefined;
  /** What shows the server who calls, made by `memoryd token create`. */
  readonly token?: string | undefined;
  /** The certificates, in PEM, of the CA that vouches for the server: the path of their file, or its bytes. */
  readonly ca?: string | URL | Uint8Array | undefined;
  /**
   * Whether to encrypt; by default yes with a `ca` and no without. `true` without a `ca` trusts the public CAs that Node.js
   * brings, or those of the file that GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names.
   */
  readonly tls?: boolean | undefined;
  /**
   * Sends the token unencrypted, also to another machine: for a network where nobody else can read. Without it, that is an
   * error.
   */
  readonly allowTokenWithoutTls?: boolean | undefined;
  /** Where to tell what nobody is there to catch; by default warnings go to the console. */
  readonly logger?: Logger | undefined;
}

/** Whom a client talks to. */
export class Target {
  readonly timeoutMs: number;
  readonly store: string | undefined;
  readonly logger: Logger;
  readonly credentials: ChannelCredentials;
  readonly #token: string | undefined;

  constructor(
    readonly address: string,
    options: ClientOptions,
  ) {
    if (!string(address, "address", DEFAULT_ADDRESS)) {
      throw new RangeError(`address is empty; give the server's host:port, for example "${DEFAULT_ADDRESS}"`);
    }
    this.timeoutMs = milliseconds(options.timeoutMs ?? DEFAULT_TIMEOUT_MS, "timeoutMs");
    if (this.timeoutMs <= 0) {
      throw new RangeError(`timeoutMs is ${this.timeoutMs}; give the milliseconds that a call may take, more than 0`);
    }
    this.store = options.store === undefined ? undefined : storeName(options.store, "store");
    this.#token = options.token === undefined ? undefined : checkedToken(options.token);
    this.logger = options.logger ?? DEFAULT_LOGGER;
    const { ca, tls, allowTokenWithoutTls } = options;
    if (ca !== undefined && tls === false) throw new TypeError("ca is given and tls is false; leave one of them out");
    const encrypted = tls ?? ca !== undefined;
    if (this.#token !== undefined && !encrypted && allowTokenWithoutTls !== true && !isLoopback(address)) {
      throw new TypeError(
        `token would go to ${address} unencrypted, for anybody on the way to read; give ca (the certificate of the ` +
          "server's CA) or tls: true (for one from a public CA), or accept it with allowTokenWithoutTls: true",
      );
    }
    const roots = ca === undefined ? undefined : certificates(ca);
    this.credentials = encrypted ? credentials.createSsl(roots ?? null) : credentials.createInsecure();
  }

  /** The metadata of requests to a store; undefined for the server's default. */
  metadata(store: string | undefined): Metadata {
    const metadata = new Metadata();
    if (store !== undefined) metadata.set("memoryd-store", store);
    if (this.#token !== undefined) metadata.set("authorization", `Bearer ${this.#token}`);
    return metadata;
  }

  /** The options of the channel. The limit of received messages stays gRPC's 4 MiB: every answer fits into it. */
  channelOptions(): ChannelOptions {
    return {
      "grpc.service_config_disable_resolution": 1,
      "grpc.initial_reconnect_backoff_ms": FIRST_PAUSE_MS,
      "grpc.max_reconnect_backoff_ms": LONGEST_PAUSE_MS,
      // The server allows pings every 10 s. A watch sends nothing after its request: without pings it would not notice
      // that its connection is gone.
      "grpc.keepalive_time_ms": 30_000,
      "grpc.keepalive_timeout_ms": 10_000,
      // A proxy from the environment (http_proxy) does not reach this machine's loopback.
      ...(isLoopback(this.address) ? { "grpc.enable_http_proxy": 0 } : {}),
    };
  }
}

/** Whether an address is this machine's own, so that nobody in between can read along. */
export function isLoopback(address: string): boolean {
  if (address.startsWith("unix:")) return true;
  const host = address.replace(/:[0-9]+$/, "").replace(/^\[(.*)\]$/, "$1");
  switch (isIP(host)) {
    case 4:
      return host.startsWith("127.");
    case 6:
      return /^(?:0*:)*:?0*1$/.test(host);
    default:
      return host === "localhost";
  }
}

/** The name of a store. Errors name the argument that it was given as. */
export function storeName(value: string, argument: string): string {
  if (!/^[\x20-\x7e]+$/.test(string(value, argument, "default"))) {
    throw new RangeError(`${argument} is ${JSON.stringify(value)}; the name of a store is printable ASCII`);
  }
  return value;
}

/** Errors never hold the token itself. */
function checkedToken(token: string): string {
  if (typeof token !== "string") throw new TypeError(`token is ${kindOf(token)}; give text`);
  if (token === "") {
    throw new RangeError("token is empty; give one that `memoryd token create` made, or none where none is needed");
  }
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new RangeError(
      "token holds white space or characters that no token has; give it as `memoryd token create` printed it, without the " +
        "end of its line",
    );
  }
  return token;
}

function certificates(ca: string | URL | Uint8Array): Buffer {
  const [name, pem] = readCertificates(ca);
  const blocks = pem.toString("latin1").match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  try {
    // gRPC would say nothing before the first call, and then only that no server can be reached.
    for (const block of blocks) new X509Certificate(block);
  } catch (error) {
    throw new TypeError(`${name} holds a certificate that cannot be read`, { cause: error });
  }
  if (blocks.length === 0) throw new TypeError(`${name} holds no certificate; give one or more, in PEM`);
  return pem;
}

function readCertificates(ca: string | URL | Uint8Array): [string, Buffer] {
  if (ca instanceof Uint8Array) return ["ca", Buffer.from(ca)];
  if (typeof ca !== "string" && !(ca instanceof URL)) {
    throw new TypeError(`ca is ${kindOf(ca)}; give the path of a PEM file, or its bytes`);
  }
  const name = `ca ${JSON.stringify(ca.toString())}`;
  try {
    return [name, readFileSync(ca)];
  } catch (error) {
    throw new TypeError(`${name} cannot be read: ${(error as Error).message}; give the path of a PEM file`, { cause: error });
  }
}
