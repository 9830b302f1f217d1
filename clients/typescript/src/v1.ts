/**
 * The generated code of the API, for those who make calls of their own: messages and service descriptors for
 * `@bufbuild/protobuf`, with which `@connectrpc/connect-node` or `@grpc/grpc-js` call the server.
 *
 * @module
 */

import "./utf8.js";

export * from "./gen/memoryd/v1/agent_service_pb.js";
export * from "./gen/memoryd/v1/error_reason_pb.js";
export * from "./gen/memoryd/v1/history_service_pb.js";
export * from "./gen/memoryd/v1/memory_context_service_pb.js";
export * from "./gen/memoryd/v1/message_pb.js";
export * from "./gen/memoryd/v1/policy_pb.js";
export * from "./gen/memoryd/v1/run_service_pb.js";
export * from "./gen/memoryd/v1/session_pb.js";
export * from "./gen/memoryd/v1/store_service_pb.js";
export * from "./gen/memoryd/v1/summary_service_pb.js";
export * from "./gen/memoryd/v1/window_service_pb.js";
