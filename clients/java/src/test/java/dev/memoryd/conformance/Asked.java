package dev.memoryd.conformance;

import com.google.protobuf.ByteString;
import com.google.protobuf.ProtocolMessageEnum;
import com.google.protobuf.Timestamp;
import dev.memoryd.AgentUpdate;
import dev.memoryd.AppendOptions;
import dev.memoryd.Json;
import dev.memoryd.ListOrder;
import dev.memoryd.MemoryRequest;
import dev.memoryd.MemorySource;
import dev.memoryd.MemoryStyle;
import dev.memoryd.MemorydException;
import dev.memoryd.Message;
import dev.memoryd.MessageQuery;
import dev.memoryd.MessageView;
import dev.memoryd.OpenCalls;
import dev.memoryd.Oversize;
import dev.memoryd.Payload;
import dev.memoryd.Policy;
import dev.memoryd.Protos;
import dev.memoryd.Retention;
import dev.memoryd.Role;
import dev.memoryd.RunOptions;
import dev.memoryd.RunStatus;
import dev.memoryd.SessionSettings;
import dev.memoryd.SessionUpdate;
import dev.memoryd.SummaryPolicy;
import dev.memoryd.Tokenizer;
import dev.memoryd.WindowMode;
import dev.memoryd.WindowOptions;
import dev.memoryd.WindowRequest;
import dev.memoryd.conformance.v1.RenderMemory;
import dev.memoryd.conformance.v1.TierSource;
import dev.memoryd.v1.AppendMessagesRequest;
import dev.memoryd.v1.ListMessagesRequest;
import dev.memoryd.v1.LoadWindowRequest;
import dev.memoryd.v1.MessageFilter;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;

/** What a command asks for, in the types of the SDK. What these cannot say is a {@link Fault}. */
final class Asked {
  private Asked() {}

  /** Text that the API has empty where the SDK has null. */
  static String text(String text) {
    return text.isEmpty() ? null : text;
  }

  static Duration duration(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }

  private static Instant instant(Timestamp timestamp) {
    return Instant.ofEpochSecond(timestamp.getSeconds(), timestamp.getNanos());
  }

  /** The SDK's value of an enum; null for UNSPECIFIED. */
  private static <E extends Enum<E>> E value(Class<E> type, ProtocolMessageEnum value) {
    String unspecified = value.getDescriptorForType().findValueByNumber(0).getName();
    String name = value.getValueDescriptor().getName();
    String prefix = unspecified.substring(0, unspecified.length() - "UNSPECIFIED".length());
    return name.equals(unspecified) ? null : Enum.valueOf(type, name.substring(prefix.length()));
  }

  static RunStatus status(dev.memoryd.v1.RunStatus status) {
    RunStatus value = value(RunStatus.class, status);
    return value == null ? RunStatus.UNSPECIFIED : value;
  }

  static Role role(dev.memoryd.v1.Role role) {
    Role value = value(Role.class, role);
    if (value == null) {
      throw new Fault("the SDK has no role UNSPECIFIED");
    }
    return value;
  }

  static List<Message> messages(List<dev.memoryd.v1.Message> messages) {
    try {
      return messages.stream().map(Protos::fromProto).toList();
    } catch (MemorydException.AnswerUnreadable unsayable) {
      throw new Fault("the SDK cannot say this message", unsayable);
    }
  }

  static AppendOptions append(AppendMessagesRequest request) {
    return new AppendOptions(
        text(request.getRequestId()),
        request.hasExpectedLastSeq() ? request.getExpectedLastSeq() : null,
        request.hasCreate() ? settings(request.getCreate()) : null);
  }

  static SessionSettings settings(dev.memoryd.v1.SessionSettings settings) {
    Tokenizer tokenizer = value(Tokenizer.class, settings.getTokenizer());
    return new SessionSettings(
        settings.getUserId(),
        settings.getLabelsMap(),
        tokenizer == null ? Tokenizer.UNSPECIFIED : tokenizer,
        settings.hasPolicy() ? policy(settings.getPolicy()) : null,
        settings.hasTtl() ? duration(settings.getTtl()) : null);
  }

  private static WindowOptions options(dev.memoryd.v1.WindowOptions options) {
    return new WindowOptions(
        value(WindowMode.class, options.getMode()),
        options.hasLimit() ? options.getLimit() : null,
        options.hasPinSystem() ? options.getPinSystem() : null,
        options.hasStartWithUser() ? options.getStartWithUser() : null,
        value(OpenCalls.class, options.getOpenCalls()),
        value(Oversize.class, options.getOversize()));
  }

  private static Policy policy(dev.memoryd.v1.Policy policy) {
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
                value(Retention.class, summary.getRetention()),
                summary.hasWait() ? summary.getWait() : null));
  }

  static MessageQuery query(ListMessagesRequest request) {
    ListOrder order = value(ListOrder.class, request.getOrder());
    MessageView view = value(MessageView.class, request.getView());
    MessageFilter filter = request.getFilter();
    return new MessageQuery(
        order == null ? MessageQuery.ACTIVE.order() : order,
        view == null ? MessageQuery.ACTIVE.view() : view,
        filter.getRolesList().stream().map(Asked::role).toList(),
        filter.getRunId(),
        filter.getFromSeq(),
        filter.getToSeq(),
        filter.hasFromTime() ? instant(filter.getFromTime()) : null,
        filter.hasToTime() ? instant(filter.getToTime()) : null);
  }

  static SessionUpdate sessionUpdate(dev.memoryd.v1.Session session, List<String> paths) {
    SessionUpdate update = SessionUpdate.NOTHING.withEtag(text(session.getEtag()));
    for (String path : paths) {
      update =
          switch (path) {
            case "user_id" -> update.withUserId(session.getUserId());
            case "labels" -> update.withLabels(session.getLabelsMap());
            case "ttl" ->
                update.withTtl(session.hasTtl() ? duration(session.getTtl()) : SessionUpdate.FOREVER);
            case "policy" -> update.withPolicy(policy(session.getPolicy()));
            default -> throw new Fault("the SDK cannot change " + path + " of a session");
          };
    }
    return update;
  }

  static AgentUpdate agentUpdate(dev.memoryd.v1.Agent agent, List<String> paths) {
    AgentUpdate update = AgentUpdate.NOTHING.withEtag(text(agent.getEtag()));
    for (String path : paths) {
      update =
          switch (path) {
            case "policy" -> update.withPolicy(policy(agent.getPolicy()));
            case "load_memory" -> update.withLoadMemory(agent.getLoadMemory());
            case "run_retention" ->
                update.withRunRetention(
                    agent.hasRunRetention() ? duration(agent.getRunRetention()) : AgentUpdate.SERVERS_DEFAULT);
            default -> throw new Fault("the SDK cannot change " + path + " of an agent");
          };
    }
    return update;
  }

  static WindowRequest window(LoadWindowRequest request) {
    return new WindowRequest(
        options(request.getOptions()),
        request.hasSummary() ? request.getSummary() : null,
        request.hasWaitForSummary() ? request.getWaitForSummary() : null,
        request.getExplain());
  }

  static MemoryRequest memory(RenderMemory request) {
    MemoryStyle style = value(MemoryStyle.class, request.getStyle());
    return new MemoryRequest(
        request.hasUser() ? userTier(request.getUser()) : null,
        request.hasProject() ? projectTier(request.getProject()) : null,
        request.getAgent(),
        request.getBudget(),
        style == null ? MemoryStyle.ENCLOSED : style);
  }

  private static MemorySource userTier(TierSource source) {
    return source.hasFiles()
        ? new MemorySource.UserFiles(Path.of(source.getFiles()))
        : new MemorySource.Stored(source.getStored());
  }

  private static MemorySource projectTier(TierSource source) {
    return source.hasFiles()
        ? new MemorySource.ProjectFiles(Path.of(source.getFiles()))
        : new MemorySource.Stored(source.getStored());
  }

  /** How a run is held; {@code lease} is null for the SDK's default. */
  static RunOptions holding(String holder, com.google.protobuf.Duration lease) {
    RunOptions options = RunOptions.DEFAULT.withHolder(text(holder));
    return lease == null ? options : options.withLease(duration(lease));
  }

  static Payload payload(dev.memoryd.conformance.v1.Payload payload) throws Json.Unreadable {
    Payload made =
        switch (payload.getFormCase()) {
          case TEXT -> Payload.text(payload.getText());
          case JSON -> Payload.json(Json.read(payload.getJson()));
          case DATA -> new Payload(payload.getData(), "");
          case FORM_NOT_SET -> new Payload(ByteString.EMPTY, "");
        };
    return payload.getContentType().isEmpty() ? made : new Payload(made.bytes(), payload.getContentType());
  }
}
