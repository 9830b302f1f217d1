package dev.memoryd;

import java.nio.file.Path;

/**
 * What memory to render, and how.
 *
 * <pre>{@code
 * MemoryContext context = memory.renderContext(MemoryRequest.files(Path.of(".")));
 * String systemPrompt = "You are a travel agent. " + context.prompt();
 * }</pre>
 *
 * @param user where the user tier is: {@link MemorySource.UserFiles} or {@link MemorySource.Stored}; null for nowhere
 * @param project where the project tier is: {@link MemorySource.ProjectFiles} or {@link MemorySource.Stored}; null for nowhere
 * @param agent the agent whose prompt it is for: without {@code loadMemory} in its settings, nothing is rendered. Empty: no
 *     agent is asked, and the call itself is the opt-in
 * @param budget the most characters of headers, notices and memory together, 256 to 100,000; 0 for 6,000
 * @param style the form of the block
 */
public record MemoryRequest(
    MemorySource user, MemorySource project, String agent, int budget, MemoryStyle style) {

  /** No tier yet. */
  public static final MemoryRequest NOTHING = new MemoryRequest(null, null, "", 0, MemoryStyle.ENCLOSED);

  /** Makes it. */
  public MemoryRequest {
    if (user instanceof MemorySource.ProjectFiles) {
      throw new IllegalArgumentException("user is in ProjectFiles; give UserFiles or Stored");
    }
    if (project instanceof MemorySource.UserFiles) {
      throw new IllegalArgumentException("project is in UserFiles; give ProjectFiles or Stored");
    }
    Protos.text(agent, "agent");
  }

  /** Both tiers from files of this machine: the usual ones of the user, and those of a workspace. */
  public static MemoryRequest files(Path workspace) {
    return NOTHING
        .withUser(new MemorySource.UserFiles())
        .withProject(new MemorySource.ProjectFiles(workspace));
  }

  /** Both tiers from the store. */
  public static MemoryRequest stored(String user, String project) {
    return NOTHING.withUser(new MemorySource.Stored(user)).withProject(new MemorySource.Stored(project));
  }

  /** Where the user tier is. */
  public MemoryRequest withUser(MemorySource user) {
    return new MemoryRequest(user, project, agent, budget, style);
  }

  /** Where the project tier is. */
  public MemoryRequest withProject(MemorySource project) {
    return new MemoryRequest(user, project, agent, budget, style);
  }

  /** The agent whose prompt it is for. */
  public MemoryRequest withAgent(String agent) {
    return new MemoryRequest(user, project, agent, budget, style);
  }

  /** The most characters. */
  public MemoryRequest withBudget(int budget) {
    return new MemoryRequest(user, project, agent, budget, style);
  }

  /** The form of the block. */
  public MemoryRequest withStyle(MemoryStyle style) {
    return new MemoryRequest(user, project, agent, budget, style);
  }
}
