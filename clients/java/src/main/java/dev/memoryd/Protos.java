package dev.memoryd;

import com.google.protobuf.Timestamp;
import dev.memoryd.Part.Data;
import dev.memoryd.Part.Media;
import dev.memoryd.Part.Reasoning;
import dev.memoryd.Part.Refusal;
import dev.memoryd.Part.ResultPart;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import dev.memoryd.v1.SessionKey;
import io.grpc.Status;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Objects;

/** Between the client's types and those of the API: for callers of the bare stubs, and the client itself. */
public final class Protos {
  private Protos() {}

  /**
   * A message for the API.
   *
   * @throws IllegalArgumentException for a text that UTF-8 cannot encode, which is half of a surrogate pair
   */
  public static dev.memoryd.v1.Message toProto(Message message) {
    Objects.requireNonNull(message, "message");
    try {
      dev.memoryd.v1.Message.Builder result =
          dev.memoryd.v1.Message.newBuilder()
              .setId(text(message.id().isEmpty() ? Ids.newId() : message.id(), "id"))
              .setSeq(message.seq())
              .setRole(message.role().toApi())
              .setRunId(text(message.runId(), "runId"))
              .setMetadata(text(message.metadata(), "metadata"))
              .setExtra(text(message.extra(), "extra"))
              .setTokenCount(message.tokenCount());
      if (message.name() != null) {
        result.setName(text(message.name(), "name"));
      }
      if (message.content() != null) {
        dev.memoryd.v1.Content.Builder content = result.getContentBuilder();
        message.content().forEach(part -> content.addParts(part(part)));
      }
      if (message.createTime() != null) {
        result.setCreateTime(timestamp(message.createTime()));
      }
      if (message.redaction() != null) {
        result
            .getRedactionBuilder()
            .setRedactTime(timestamp(message.redaction().redactTime()))
            .setReason(text(message.redaction().reason(), "reason"));
      }
      return result.build();
    } catch (IllegalArgumentException half) {
      throw new IllegalArgumentException("message " + message.id() + ": " + half.getMessage(), half);
    }
  }

  /**
   * A message of the API.
   *
   * @throws MemorydException.AnswerUnreadable for a role or a part that this client does not know
   */
  public static Message fromProto(dev.memoryd.v1.Message message) {
    Role role = Role.of(message.getRoleValue());
    if (role == null) {
      throw unreadable("the role " + message.getRoleValue() + " of message " + message.getId());
    }
    return new Message(
        role,
        message.hasContent() ? message.getContent().getPartsList().stream().map(Protos::part).toList() : null,
        message.hasName() ? message.getName() : null,
        message.getRunId(),
        message.getMetadata(),
        message.getExtra(),
        message.getId(),
        message.getSeq(),
        message.hasCreateTime() ? instant(message.getCreateTime()) : null,
        message.getTokenCount(),
        message.hasRedaction()
            ? new Redaction(instant(message.getRedaction().getRedactTime()), message.getRedaction().getReason())
            : null);
  }

  static List<Message> messages(List<dev.memoryd.v1.Message> messages) {
    return messages.stream().map(Protos::fromProto).toList();
  }

  private static dev.memoryd.v1.Part part(Part part) {
    dev.memoryd.v1.Part.Builder result = dev.memoryd.v1.Part.newBuilder();
    if (part instanceof Text text) {
      result.setText(text(text.text(), "a text"));
    } else if (part instanceof Reasoning reasoning) {
      result
          .getReasoningBuilder()
          .setText(text(reasoning.text(), "a text"))
          .setSignature(text(reasoning.signature(), "a signature"));
    } else if (part instanceof Refusal refusal) {
      result.setRefusal(text(refusal.text(), "a refusal"));
    } else if (part instanceof Media media) {
      dev.memoryd.v1.Media.Builder built =
          result.getMediaBuilder().setType(text(media.type(), "a type")).setSize(media.size());
      if (media.uri() != null) {
        built.setUri(text(media.uri(), "a uri"));
      } else {
        built.setData(media.data());
      }
    } else if (part instanceof Data data) {
      result.setData(text(data.json(), "data"));
    } else if (part instanceof ToolCall call) {
      result
          .getToolCallBuilder()
          .setId(text(call.id(), "a call's id"))
          .setName(text(call.name(), "a call's name"))
          .setArguments(text(call.arguments(), "a call's arguments"));
    } else if (part instanceof ToolResult answer) {
      dev.memoryd.v1.ToolResult.Builder built =
          result
              .getToolResultBuilder()
              .setCallId(text(answer.callId(), "a call's id"))
              .setName(text(answer.name(), "a tool's name"))
              .setIsError(answer.isError());
      answer.parts().forEach(inner -> built.addParts(part(inner)));
    }
    return result.build();
  }

  private static Part part(dev.memoryd.v1.Part part) {
    return switch (part.getKindCase()) {
      case REASONING -> new Reasoning(part.getReasoning().getText(), part.getReasoning().getSignature());
      case TOOL_CALL ->
          new ToolCall(part.getToolCall().getId(), part.getToolCall().getName(), part.getToolCall().getArguments());
      case TOOL_RESULT -> {
        dev.memoryd.v1.ToolResult result = part.getToolResult();
        yield new ToolResult(
            result.getCallId(),
            result.getName(),
            result.getIsError(),
            result.getPartsList().stream().map(Protos::resultPart).toList());
      }
      default -> resultPart(part);
    };
  }

  private static ResultPart resultPart(dev.memoryd.v1.Part part) {
    return switch (part.getKindCase()) {
      case TEXT -> new Text(part.getText());
      case REFUSAL -> new Refusal(part.getRefusal());
      case MEDIA -> {
        dev.memoryd.v1.Media media = part.getMedia();
        yield media.hasUri()
            ? new Media(media.getType(), media.getUri(), null, media.getSize())
            : new Media(media.getType(), null, media.getData(), media.getSize());
      }
      case DATA -> new Data(part.getData());
      default -> throw unreadable("a kind of message part");
    };
  }

  private static MemorydException unreadable(String what) {
    return new MemorydException.AnswerUnreadable(
        MemorydException.details(
            "the server sent " + what + " that this client does not know; a newer one may",
            Status.Code.UNIMPLEMENTED));
  }

  /** Text that a request can carry. */
  static String text(String value, String argument) {
    Objects.requireNonNull(value, argument);
    if (!Json.encodable(value)) {
      throw new IllegalArgumentException(
          argument + " holds half of a surrogate pair, which UTF-8 cannot encode; replace it, for example with U+FFFD");
    }
    return value;
  }

  /** Text that a request can carry; empty where the caller gives none. */
  static String optional(String value, String argument) {
    return value == null ? "" : text(value, argument);
  }

  /** The mark of a request, made before its first try where the caller gives none. */
  static String marked(String requestId) {
    return requestId == null ? Ids.newId() : text(requestId, "requestId");
  }

  static SessionKey key(String agent, String id) {
    return SessionKey.newBuilder().setAgent(text(agent, "agent")).setSessionId(text(id, "id")).build();
  }

  static Instant instant(Timestamp timestamp) {
    return Instant.ofEpochSecond(timestamp.getSeconds(), timestamp.getNanos());
  }

  static Timestamp timestamp(Instant instant) {
    return Timestamp.newBuilder().setSeconds(instant.getEpochSecond()).setNanos(instant.getNano()).build();
  }

  static com.google.protobuf.Duration duration(Duration duration) {
    // The parts of a proto's duration have one sign.
    long seconds = duration.getSeconds();
    int nanos = duration.getNano();
    if (seconds < 0 && nanos > 0) {
      seconds++;
      nanos -= 1_000_000_000;
    }
    return com.google.protobuf.Duration.newBuilder().setSeconds(seconds).setNanos(nanos).build();
  }

  static Duration duration(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }

  static dev.memoryd.v1.WindowOptions options(WindowOptions options) {
    dev.memoryd.v1.WindowOptions.Builder result = dev.memoryd.v1.WindowOptions.newBuilder();
    if (options.mode() != null) {
      result.setMode(options.mode().toApi());
    }
    if (options.limit() != null) {
      result.setLimit(options.limit());
    }
    if (options.pinSystem() != null) {
      result.setPinSystem(options.pinSystem());
    }
    if (options.startWithUser() != null) {
      result.setStartWithUser(options.startWithUser());
    }
    if (options.openCalls() != null) {
      result.setOpenCalls(options.openCalls().toApi());
    }
    if (options.oversize() != null) {
      result.setOversize(options.oversize().toApi());
    }
    return result.build();
  }

  /** Options of the API; UNSPECIFIED is the same as absent. */
  static WindowOptions options(dev.memoryd.v1.WindowOptions options) {
    return new WindowOptions(
        options.getModeValue() == 0 ? null : WindowMode.of(options.getModeValue()),
        options.hasLimit() ? options.getLimit() : null,
        options.hasPinSystem() ? options.getPinSystem() : null,
        options.hasStartWithUser() ? options.getStartWithUser() : null,
        options.getOpenCallsValue() == 0 ? null : OpenCalls.of(options.getOpenCallsValue()),
        options.getOversizeValue() == 0 ? null : Oversize.of(options.getOversizeValue()));
  }

  static dev.memoryd.v1.Policy policy(Policy policy) {
    dev.memoryd.v1.Policy.Builder result =
        dev.memoryd.v1.Policy.newBuilder().setWindow(options(policy.window()));
    SummaryPolicy summary = policy.summary();
    if (summary != null) {
      dev.memoryd.v1.SummaryPolicy.Builder built =
          result.getSummaryBuilder().setSummarizer(text(summary.summarizer(), "summarizer"));
      if (summary.enabled() != null) {
        built.setEnabled(summary.enabled());
      }
      if (summary.maxTokens() != null) {
        built.setMaxTokens(summary.maxTokens());
      }
      if (summary.keep() != null) {
        built.setKeep(summary.keep());
      }
      if (summary.retention() != null) {
        built.setRetention(summary.retention().toApi());
      }
      if (summary.waits() != null) {
        built.setWait(summary.waits());
      }
    }
    return result.build();
  }

  static Policy policy(dev.memoryd.v1.Policy policy) {
    dev.memoryd.v1.SummaryPolicy summary = policy.getSummary();
    return new Policy(
        options(policy.getWindow()),
        !policy.hasSummary()
            ? null
            : new SummaryPolicy(
                summary.hasEnabled() ? summary.getEnabled() : null,
                summary.getSummarizer(),
                summary.hasMaxTokens() ? summary.getMaxTokens() : null,
                summary.hasKeep() ? summary.getKeep() : null,
                summary.getRetentionValue() == 0 ? null : Retention.of(summary.getRetentionValue()),
                summary.hasWait() ? summary.getWait() : null));
  }

  static dev.memoryd.v1.SessionSettings settings(SessionSettings settings) {
    dev.memoryd.v1.SessionSettings.Builder result =
        dev.memoryd.v1.SessionSettings.newBuilder()
            .setUserId(text(settings.userId(), "userId"))
            .setTokenizer(settings.tokenizer().toApi());
    settings.labels().forEach((key, value) -> result.putLabels(text(key, "labels"), text(value, "labels")));
    if (settings.policy() != null) {
      result.setPolicy(policy(settings.policy()));
    }
    if (settings.ttl() != null && !settings.ttl().equals(SessionUpdate.FOREVER)) {
      result.setTtl(duration(settings.ttl()));
    }
    return result.build();
  }

  static AppendedMessage appended(dev.memoryd.v1.AppendedMessage message) {
    return new AppendedMessage(
        message.getId(),
        message.getSeq(),
        instant(message.getCreateTime()),
        message.getTokenCount(),
        message.getMemoryContextRemoved());
  }

  static SessionInfo session(dev.memoryd.v1.Session session) {
    return new SessionInfo(
        session.getKey().getAgent(),
        session.getKey().getSessionId(),
        session.getUserId(),
        session.getLabelsMap(),
        policy(session.getPolicy()),
        Tokenizer.of(session.getTokenizerValue()),
        session.getMessageCount(),
        session.getTokenCount(),
        session.getOpenMessageCount(),
        session.getOrphanMessageCount(),
        session.getOpenCallCount(),
        session.getLastSeq(),
        session.hasCreateTime() ? instant(session.getCreateTime()) : null,
        session.hasActivityTime() ? instant(session.getActivityTime()) : null,
        session.getEtag(),
        session.hasTtl() ? duration(session.getTtl()) : null,
        session.hasExpireTime() ? instant(session.getExpireTime()) : null,
        session.getUnfinishedRunCount());
  }

  static AgentInfo agent(dev.memoryd.v1.Agent agent) {
    return new AgentInfo(
        agent.getAgent(),
        policy(agent.getPolicy()),
        agent.hasUpdateTime() ? instant(agent.getUpdateTime()) : null,
        agent.getEtag(),
        agent.getLoadMemory(),
        agent.hasRunRetention() ? duration(agent.getRunRetention()) : null);
  }

  static StoreInfo store(dev.memoryd.v1.Store store) {
    return new StoreInfo(
        store.getName(),
        store.getType(),
        store.getReachable(),
        store.getDurable(),
        store.getDefault(),
        store.getCapabilitiesList().stream()
            .map(power -> new StoreInfo.Capability(power.getName(), power.getSupported(), power.getReason()))
            .toList());
  }

  static Summary summary(dev.memoryd.v1.Summary summary) {
    return new Summary(
        summary.getId(),
        summary.getText(),
        summary.getPreviousId(),
        summary.getFromSeq(),
        summary.getToSeq(),
        summary.getMessageCount(),
        summary.getCoveredFromSeq(),
        summary.getCoveredMessageCount(),
        summary.getSummarizer(),
        summary.getModel(),
        summary.getInputTokenCount(),
        summary.getOutputTokenCount(),
        instant(summary.getCreateTime()),
        duration(summary.getDuration()),
        summary.getCurrent(),
        summary.getOriginalsRemoved());
  }

  static WindowStats stats(dev.memoryd.v1.WindowStats stats) {
    dev.memoryd.v1.LeftOut leftOut = stats.getLeftOut();
    return new WindowStats(
        stats.getHistoryMessageCount(),
        stats.getHistoryTokenCount(),
        stats.getWindowMessageCount(),
        stats.getWindowTokenCount(),
        WindowMode.of(stats.getModeValue()),
        stats.getLimit(),
        stats.getLimitUsedPercent(),
        new LeftOut(
            leftOut.getLimitCount(),
            leftOut.getLimitFromSeq(),
            leftOut.getLimitToSeq(),
            leftOut.getOrphanResultCount(),
            leftOut.getOpenToolCallCount(),
            leftOut.getMessagesList().stream()
                .map(
                    left ->
                        new LeftOut.LeftOutMessage(left.getSeq(), LeftOutReason.of(left.getReasonValue())))
                .toList()),
        stats.getUncoveredMessageCount(),
        stats.getOverLimit(),
        stats.getShortenedSeqsList(),
        SummaryState.of(stats.getSummaryStateValue()),
        stats.getSummaryId(),
        stats.getSummaryFailure(),
        stats.getPrefixDigest(),
        stats.getPinnedMessageCount(),
        stats.getLastSeq(),
        stats.getFirstSeq());
  }

  static WatchEvent event(dev.memoryd.v1.WatchEvent event) {
    return new WatchEvent(
        WatchEventKind.of(event.getKindValue()),
        event.getFromSeq(),
        event.getToSeq(),
        event.hasMessage() ? fromProto(event.getMessage()) : null,
        event.hasEventTime() ? instant(event.getEventTime()) : null,
        event.getResumeToken());
  }

  static TierStatus tier(dev.memoryd.v1.MemoryTierStatus status) {
    // What is told of none is absent.
    TierState state = status.getStateValue() == 0 ? TierState.ABSENT : TierState.of(status.getStateValue());
    return new TierStatus(state, status.getKeptLineCount(), status.getDroppedLineCount());
  }

  static MemoryFileInfo file(dev.memoryd.v1.MemoryFile file) {
    return new MemoryFileInfo(
        file.getName(),
        file.getVersion(),
        file.getEtag(),
        file.getSize(),
        file.getAuthor(),
        instant(file.getCreateTime()));
  }

  static RunInfo run(dev.memoryd.v1.Run run) {
    return new RunInfo(
        run.getKey().getSession().getAgent(),
        run.getKey().getSession().getSessionId(),
        run.getKey().getRunId(),
        RunStatus.of(run.getStatusValue()),
        run.getStatusReason(),
        run.getMetadata(),
        run.getHolder(),
        run.getStepCount(),
        run.getRecoveryCount(),
        run.hasLeaseExpireTime() ? instant(run.getLeaseExpireTime()) : null,
        instant(run.getCreateTime()),
        instant(run.getUpdateTime()),
        run.hasEndTime() ? instant(run.getEndTime()) : null,
        run.getEtag());
  }

  static RunStep step(dev.memoryd.v1.RunStep step) {
    return new RunStep(
        step.getNumber(),
        step.getPayload(),
        step.getContentType(),
        step.getFirstSeq(),
        step.getMessageCount(),
        instant(step.getCreateTime()),
        RunStatus.of(step.getStatusValue()));
  }
}
