package dev.memoryd;

import java.time.Instant;

/**
 * A run as the server tells it, without its steps.
 *
 * @param agent the agent of its session
 * @param sessionId the id of its session
 * @param id unique within its session
 * @param status how it stands
 * @param reason why it has this status, as whoever set it said; empty while it is RUNNING
 * @param metadata the caller's own data, byte for byte
 * @param holder who says to have claimed it last; empty for nobody
 * @param steps how many steps are committed
 * @param recoveries how often it was claimed after a lease was over
 * @param leaseExpires when the lease is over unless it is renewed, by the store's clock; null when nobody holds it
 * @param created when it began
 * @param updated when it last changed, renewals of its lease aside
 * @param ended when it ended; null for an unfinished one
 * @param etag the mark of its state, for {@link MemoryClient#updateRun}; steps and renewals of the lease change it
 *     too
 */
public record RunInfo(
    String agent,
    String sessionId,
    String id,
    RunStatus status,
    String reason,
    String metadata,
    String holder,
    long steps,
    int recoveries,
    Instant leaseExpires,
    Instant created,
    Instant updated,
    Instant ended,
    String etag) {}
