// What carries out the commands of the conformance suite, by kind.

import type { MessageInitShape } from "@bufbuild/protobuf";

import type { CallOptions } from "../src/index.js";
import type { DriverClient } from "./driver-client.js";
import type { Command, ReplySchema } from "./gen/tests/conformance/conformance_pb.js";

type Operation = Exclude<Command["operation"], { case: undefined }>;

/** The kinds of commands to a client that there is. */
export type Kind = Exclude<Operation["case"], "connect" | "close">;
/** What a command of a kind tells. */
export type Given<Which extends Kind> = Extract<Operation, { case: Which }>["value"];
/** A reply, without the id of its command. */
export type Answer = MessageInitShape<typeof ReplySchema>;

/** Carries out a command of a kind by the methods of the SDK. Rejects with what these reject with, or a Fault. */
export type CarriesOut<Which extends Kind> = (client: DriverClient, given: Given<Which>, call: CallOptions) => Promise<Answer>;
export type Operations<Kinds extends Kind> = { readonly [Which in Kinds]: CarriesOut<Which> };

/** What the driver cannot do. */
export class Fault extends Error {}
