package dev.memoryd.conformance;

import com.google.protobuf.Descriptors.EnumDescriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor.JavaType;
import com.google.protobuf.Message.Builder;
import com.google.protobuf.Timestamp;
import dev.memoryd.AddedEntries;
import dev.memoryd.AgentInfo;
import dev.memoryd.ClearedAgent;
import dev.memoryd.ErasedUser;
import dev.memoryd.MemoryContext;
import dev.memoryd.MemoryFile;
import dev.memoryd.MemorydException;
import dev.memoryd.Message;
import dev.memoryd.Protos;
import dev.memoryd.RewoundSession;
import dev.memoryd.Run;
import dev.memoryd.RunInfo;
import dev.memoryd.SessionInfo;
import dev.memoryd.StoreInfo;
import dev.memoryd.SummarizedSession;
import dev.memoryd.SummaryPolicy;
import dev.memoryd.SummaryTask;
import dev.memoryd.TierStatus;
import dev.memoryd.conformance.v1.Failure;
import dev.memoryd.conformance.v1.HeldRun;
import dev.memoryd.conformance.v1.Rendered;
import dev.memoryd.v1.ErrorReason;
import dev.memoryd.v1.MemoryContextState;
import dev.memoryd.v1.MemoryTierStatus;
import dev.memoryd.v1.MemoryTool;
import dev.memoryd.v1.RenderMemoryContextResponse;
import dev.memoryd.v1.RunKey;
import dev.memoryd.v1.RunStatus;
import dev.memoryd.v1.SessionKey;
import java.lang.reflect.RecordComponent;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;

/** What the SDK answers, as messages of the API. */
final class Told {
  /** By record: the components of fields that have another name there; an empty one is left to the caller. */
  private static final Map<Class<?>, Map<String, String>> NAMES =
      Map.ofEntries(
          Map.entry(AddedEntries.class, Map.of("added_count", "added", "skipped_count", "skipped")),
          Map.entry(
              ClearedAgent.class,
              Map.of("cleared_session_count", "sessionCount", "cleared_message_count", "messageCount")),
          Map.entry(
              ErasedUser.class,
              Map.of(
                  "erased_session_count", "sessionCount",
                  "erased_message_count", "messageCount",
                  "erased_lookup_count", "lookupCount",
                  "erased_memory_file_count", "memoryFileCount",
                  "erased_run_count", "runCount",
                  "erased_run_step_count", "runStepCount")),
          Map.entry(MemoryFile.class, Map.of("file", "info")),
          Map.entry(RewoundSession.class, Map.of("removed_message_count", "messageCount")),
          Map.entry(
              RunInfo.class,
              Map.of(
                  "key", "",
                  "status_reason", "reason",
                  "step_count", "steps",
                  "recovery_count", "recoveries",
                  "lease_expire_time", "leaseExpires",
                  "create_time", "created",
                  "update_time", "updated",
                  "end_time", "ended")),
          Map.entry(SessionInfo.class, Map.of("key", "")),
          Map.entry(StoreInfo.class, Map.of("default", "isDefault")),
          Map.entry(SummarizedSession.class, Map.of("folded_message_count", "messageCount")),
          Map.entry(SummaryPolicy.class, Map.of("wait", "waits")),
          Map.entry(TierStatus.class, Map.of("kept_line_count", "keptLines", "dropped_line_count", "droppedLines")));

  private Told() {}

  /** Fills a message from what the SDK answered, field by field: what the SDK has no component for is a {@link Fault}. */
  static <B extends Builder> B fill(B target, Record value) {
    Map<String, String> names = NAMES.getOrDefault(value.getClass(), Map.of());
    for (FieldDescriptor field : target.getDescriptorForType().getFields()) {
      String name = names.getOrDefault(field.getName(), field.getJsonName());
      if (!name.isEmpty()) {
        set(target, field, component(value, name));
      }
    }
    return target;
  }

  private static Object component(Record value, String name) {
    RecordComponent found =
        Arrays.stream(value.getClass().getRecordComponents())
            .filter(component -> component.getName().equals(name))
            .findAny()
            .orElseThrow(() -> new Fault(value.getClass().getSimpleName() + " has no " + name));
    try {
      return found.getAccessor().invoke(value);
    } catch (ReflectiveOperationException failed) {
      throw new Fault(value.getClass().getSimpleName() + "." + name, failed);
    }
  }

  private static void set(Builder target, FieldDescriptor field, Object value) {
    if (value == null) {
      return;
    }
    if (field.isMapField()) {
      FieldDescriptor key = field.getMessageType().findFieldByNumber(1);
      FieldDescriptor held = field.getMessageType().findFieldByNumber(2);
      ((Map<?, ?>) value)
          .forEach(
              (name, inner) ->
                  target.addRepeatedField(
                      field, target.newBuilderForField(field).setField(key, name).setField(held, inner).build()));
    } else if (field.isRepeated()) {
      ((Iterable<?>) value).forEach(item -> target.addRepeatedField(field, single(target, field, item)));
    } else {
      target.setField(field, single(target, field, value));
    }
  }

  private static Object single(Builder target, FieldDescriptor field, Object value) {
    if (value instanceof Message message) {
      return message(message);
    }
    if (value instanceof Instant instant) {
      return Timestamp.newBuilder().setSeconds(instant.getEpochSecond()).setNanos(instant.getNano()).build();
    }
    if (value instanceof Duration duration) {
      return duration(duration);
    }
    if (value instanceof Record record) {
      return fill(target.newBuilderForField(field), record).build();
    }
    if (field.getJavaType() == JavaType.ENUM) {
      return number(field.getEnumType(), (Enum<?>) value);
    }
    return value;
  }

  private static EnumValueDescriptor number(EnumDescriptor type, Enum<?> value) {
    String prefix = type.findValueByNumber(0).getName().replaceFirst("UNSPECIFIED$", "");
    return type.findValueByName(prefix + value.name());
  }

  static com.google.protobuf.Duration duration(Duration duration) {
    return com.google.protobuf.Duration.newBuilder()
        .setSeconds(duration.getSeconds())
        .setNanos(duration.getNano())
        .build();
  }

  /** A message as the SDK has it: without an id where it has none. */
  static dev.memoryd.v1.Message message(Message message) {
    dev.memoryd.v1.Message made = Protos.toProto(message);
    return message.id().isEmpty() ? made.toBuilder().clearId().build() : made;
  }

  static dev.memoryd.v1.Session session(SessionInfo info) {
    return fill(dev.memoryd.v1.Session.newBuilder(), info).setKey(key(info.agent(), info.sessionId())).build();
  }

  static dev.memoryd.v1.Run run(RunInfo info) {
    return fill(dev.memoryd.v1.Run.newBuilder(), info)
        .setKey(RunKey.newBuilder().setSession(key(info.agent(), info.sessionId())).setRunId(info.id()))
        .build();
  }

  static dev.memoryd.v1.Agent agent(AgentInfo info) {
    return fill(dev.memoryd.v1.Agent.newBuilder(), info).build();
  }

  static HeldRun held(Run run) {
    return HeldRun.newBuilder()
        .setKey(
            RunKey.newBuilder().setSession(key(run.session().agent(), run.session().id())).setRunId(run.id()))
        .setStatus(RunStatus.valueOf("RUN_STATUS_" + run.status().name()))
        .setStepCount(run.steps())
        .setFence(run.fence())
        .setHolder(run.holder())
        .setMetadata(run.metadata())
        .setIsHeld(run.isHeld())
        .build();
  }

  static dev.memoryd.v1.SummaryTask task(SummaryTask task) {
    Instant expires = task.expires();
    return dev.memoryd.v1.SummaryTask.newBuilder()
        .setSession(key(task.agent(), task.sessionId()))
        .setPreviousSummary(task.previous())
        .addAllMessages(task.messages().stream().map(Told::message).collect(Collectors.toList()))
        .setInstructions(task.instructions())
        .setInput(task.input())
        .setTargetTokens(task.targetTokens())
        .setMaxTokens(task.maxTokens())
        .setExpireTime(Timestamp.newBuilder().setSeconds(expires.getEpochSecond()).setNanos(expires.getNano()))
        .setAttempts(task.attempts())
        .build();
  }

  static Rendered rendered(MemoryContext context) {
    RenderMemoryContextResponse.Builder told =
        RenderMemoryContextResponse.newBuilder()
            .setState(
                context.isEnabled()
                    ? MemoryContextState.MEMORY_CONTEXT_STATE_ENABLED
                    : MemoryContextState.MEMORY_CONTEXT_STATE_DISABLED)
            .setBlock(context.block())
            .setInstructions(context.instructions())
            .setUser(tier(context.user()))
            .setProject(tier(context.project()))
            .addAllWarnings(context.warnings());
    context.tools().names().forEach(name -> told.addTools(MemoryTool.newBuilder().setName(name)));
    return Rendered.newBuilder().setContext(told).setPrompt(context.prompt()).build();
  }

  private static MemoryTierStatus tier(TierStatus status) {
    return fill(MemoryTierStatus.newBuilder(), status).build();
  }

  static Failure failure(MemorydException failed) {
    Failure.Builder failure =
        Failure.newBuilder()
            .setReason(reason(failed.reason()))
            .setCode(failed.code().name())
            .setMessage(failed.text())
            .putAllMetadata(failed.metadata())
            .setType(failed.getClass().getSimpleName());
    if (failed instanceof MemorydException.InvalidArgument invalid) {
      failure.setField(invalid.field());
    }
    failed.retryAfter().ifPresent(pause -> failure.setRetryAfter(duration(pause)));
    return failure.build();
  }

  private static ErrorReason reason(String name) {
    EnumValueDescriptor found = ErrorReason.getDescriptor().findValueByName("ERROR_REASON_" + name);
    return found == null ? ErrorReason.ERROR_REASON_UNSPECIFIED : ErrorReason.valueOf(found);
  }

  private static SessionKey key(String agent, String id) {
    return SessionKey.newBuilder().setAgent(agent).setSessionId(id).build();
  }
}
