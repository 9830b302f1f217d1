package dev.memoryd;

import com.google.protobuf.ByteString;
import dev.memoryd.v1.MemoryContextServiceGrpc;
import dev.memoryd.v1.MemoryContextState;
import dev.memoryd.v1.MemoryOwner;
import dev.memoryd.v1.MemoryTierState;
import dev.memoryd.v1.MemoryTierStatus;
import dev.memoryd.v1.RenderMemoryContextRequest;
import dev.memoryd.v1.RenderMemoryContextResponse;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Memory for a prompt. Made by {@link MemoryClient#renderContext}. It is for a prompt alone: keep it out of logs. */
public final class MemoryContext {
  private final RenderMemoryContextResponse response;
  private final MemoryTools tools;

  private MemoryContext(RenderMemoryContextResponse response, MemoryTools tools) {
    this.response = response;
    this.tools = tools;
  }

  /** Renders; without a server there is no memory, but no error either. */
  static MemoryContext render(Caller client, MemoryRequest wanted) {
    Caller caller = client.pinned();
    List<String> warnings = new ArrayList<>();
    RenderMemoryContextRequest.Builder request =
        RenderMemoryContextRequest.newBuilder()
            .setAgent(wanted.agent())
            .setBudget(wanted.budget())
            .setStyle(wanted.style().toApi());
    SourceReading user = null;
    if (wanted.user() instanceof MemorySource.UserFiles files) {
      user = files.read();
      request.setUser(source(user));
    }
    if (wanted.project() instanceof MemorySource.ProjectFiles files) {
      SourceReading project = files.read();
      if (user != null && project.isSameFile(user)) {
        // The agent is not to keep two memories in it.
        warnings.add("Project memory and user memory are one file: it is shown once, as user memory");
      } else {
        request.setProject(source(project));
      }
    }
    Map<String, MemoryOwner> owners = new LinkedHashMap<>();
    if (wanted.user() instanceof MemorySource.Stored stored) {
      request.getUserBuilder().setStored(stored.owner());
      owners.put("user", MemoryOwner.newBuilder().setUserId(stored.owner()).build());
    }
    if (wanted.project() instanceof MemorySource.Stored stored) {
      request.getProjectBuilder().setStored(stored.owner());
      owners.put("project", MemoryOwner.newBuilder().setProjectId(stored.owner()).build());
    }
    RenderMemoryContextResponse response = answer(caller, wanted, request.build(), warnings);
    if (response.getWarningsCount() > 0) {
      Outage.LOG.log(System.Logger.Level.WARNING, String.join("; ", response.getWarningsList()));
    }
    return new MemoryContext(
        response, new MemoryTools(caller, response.getToolsList(), owners, wanted.agent()));
  }

  private static RenderMemoryContextResponse answer(
      Caller caller, MemoryRequest wanted, RenderMemoryContextRequest request, List<String> warnings) {
    try {
      RenderMemoryContextResponse response =
          caller.call(MemoryContextServiceGrpc.getRenderMemoryContextMethod(), request);
      return response.getState() == MemoryContextState.MEMORY_CONTEXT_STATE_ENABLED
          ? response.toBuilder().addAllWarnings(warnings).build()
          : response;
    } catch (MemorydException.Unavailable | MemorydException.DeadlineExceeded error) {
      RenderMemoryContextResponse.Builder none =
          RenderMemoryContextResponse.newBuilder()
              .setState(MemoryContextState.MEMORY_CONTEXT_STATE_DISABLED)
              .addWarnings("Memory could not be rendered, and the agent does without: " + error.getMessage());
      MemoryTierStatus unreadable =
          MemoryTierStatus.newBuilder().setState(MemoryTierState.MEMORY_TIER_STATE_UNREADABLE).build();
      if (wanted.user() != null) {
        none.setUser(unreadable);
      }
      if (wanted.project() != null) {
        none.setProject(unreadable);
      }
      return none.build();
    }
  }

  private static dev.memoryd.v1.MemorySource source(SourceReading read) {
    dev.memoryd.v1.MemorySource.Builder source =
        dev.memoryd.v1.MemorySource.newBuilder().setLabel(read.label());
    if (!read.reading().unreadable().isEmpty()) {
      source.setUnreadable(read.reading().unreadable());
    } else if (read.reading().content() != null) {
      source.setData(ByteString.copyFrom(read.reading().content()));
    }
    return source.build();
  }

  /** Whether memory was rendered: the agent uses it, and a server answered. There may be none yet. */
  public boolean isEnabled() {
    return response.getState() == MemoryContextState.MEMORY_CONTEXT_STATE_ENABLED;
  }

  /** The block for the prompt; empty when no tier holds text. */
  public String block() {
    return response.getBlock();
  }

  /** How to keep the memory, for the prompt; there even when no file exists yet. */
  public String instructions() {
    return response.getInstructions();
  }

  /** Block and instructions in one text, an empty line between them; empty when both are. */
  public String prompt() {
    return Stream.of(block(), instructions()).filter(text -> !text.isEmpty()).collect(Collectors.joining("\n\n"));
  }

  /** What became of the user tier. */
  public TierStatus user() {
    return Protos.tier(response.getUser());
  }

  /** What became of the project tier. */
  public TierStatus project() {
    return Protos.tier(response.getProject());
  }

  /** What went wrong on the way, a sentence each. The log {@code memoryd} has them, too. */
  public List<String> warnings() {
    return response.getWarningsList();
  }

  /** The tools that the instructions name, where the store holds a tier; none where files are. */
  public MemoryTools tools() {
    return tools;
  }

  /** Without the memory: what is logged of a context holds none. */
  @Override
  public String toString() {
    return "MemoryContext[enabled="
        + isEnabled()
        + ", user="
        + user()
        + ", project="
        + project()
        + ", warnings="
        + warnings().size()
        + "]";
  }
}
