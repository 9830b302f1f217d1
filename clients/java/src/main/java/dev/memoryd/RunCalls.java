package dev.memoryd;

import com.google.protobuf.FieldMask;
import dev.memoryd.v1.ClaimRunRequest;
import dev.memoryd.v1.ClaimRunResponse;
import dev.memoryd.v1.CreateRunRequest;
import dev.memoryd.v1.GetRunRequest;
import dev.memoryd.v1.RunKey;
import dev.memoryd.v1.RunServiceGrpc;
import dev.memoryd.v1.UpdateRunRequest;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Objects;

/**
 * Calls about runs that are more than one call. A run's claim by name and its end are repeated here and not by the caller,
 * since the run must be looked at in between: by reading it, whose own tries bring the pauses.
 */
final class RunCalls {
  /** How often a run is claimed by name, or ended, while the server is unavailable. */
  private static final int TRIES = 3;

  private static final int MOST_HOLDER_BYTES = 256;

  private RunCalls() {}

  static RunKey key(Session session, String id) {
    Objects.requireNonNull(session, "session");
    return RunKey.newBuilder().setSession(session.key()).setRunId(Protos.text(id, "id")).build();
  }

  static CreateRunRequest.Builder creation(Session session, RunOptions options) {
    Objects.requireNonNull(options, "options");
    CreateRunRequest.Builder request =
        CreateRunRequest.newBuilder()
            .setRun(key(session, options.id() == null ? Ids.newId() : options.id()))
            .setMetadata(Protos.text(options.metadata(), "metadata"));
    if (options.create() != null) {
      request.setCreate(Protos.settings(options.create()));
    }
    return request;
  }

  static String holder(RunOptions options) {
    Objects.requireNonNull(options, "options");
    if (options.holder() != null) {
      return Protos.text(options.holder(), "holder");
    }
    String host;
    try {
      host = InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException unknown) {
      host = "";
    }
    String name = host + ":" + ManagementFactory.getRuntimeMXBean().getPid();
    return name.substring(Math.max(0, name.length() - MOST_HOLDER_BYTES));
  }

  /** Claims a named run. A try whose answer was lost is recognized by the request id. */
  static ClaimRunResponse claimByName(Caller.Operation operation, ClaimRunRequest request) {
    for (int left = TRIES - 1; ; left--) {
      try {
        return operation.call(RunServiceGrpc.getClaimRunMethod(), request);
      } catch (MemorydException.Unavailable unavailable) {
        if (left == 0) {
          throw unavailable;
        }
      }
      operation.call(
          RunServiceGrpc.getGetRunMethod(), GetRunRequest.newBuilder().setRun(request.getRun()).build());
    }
  }

  /**
   * Gives a held run another status, and its lease back. A try whose answer was lost may have done it: the run then has the
   * status already, and a further try is refused.
   */
  static void settle(Caller.Operation operation, RunKey run, String fence, RunStatus status, String reason) {
    UpdateRunRequest request =
        UpdateRunRequest.newBuilder()
            .setRun(
                dev.memoryd.v1.Run.newBuilder()
                    .setKey(run)
                    .setStatus(status.toApi())
                    .setStatusReason(Protos.text(reason, "reason")))
            .setUpdateMask(FieldMask.newBuilder().addPaths("status").addPaths("status_reason"))
            .setFence(fence)
            .build();
    boolean doubtful = false;
    for (int left = TRIES - 1; ; left--) {
      try {
        operation.call(RunServiceGrpc.getUpdateRunMethod(), request);
        return;
      } catch (MemorydException.Unavailable unavailable) {
        if (left == 0) {
          throw unavailable;
        }
        if (stands(operation, request)) {
          return;
        }
        doubtful = true;
      } catch (MemorydException.RunLeaseLost | MemorydException.RunEnded refused) {
        if (doubtful && stands(operation, request)) {
          return;
        }
        throw refused;
      }
    }
  }

  /** Whether a run has the status that an update gives it. */
  private static boolean stands(Caller.Operation operation, UpdateRunRequest request) {
    dev.memoryd.v1.Run found =
        operation
            .call(
                RunServiceGrpc.getGetRunMethod(),
                GetRunRequest.newBuilder().setRun(request.getRun().getKey()).build())
            .getRun();
    return found.getStatusValue() == request.getRun().getStatusValue()
        && found.getStatusReason().equals(request.getRun().getStatusReason());
  }
}
