package dev.memoryd;

import com.google.protobuf.FieldMask;
import dev.memoryd.v1.AgentServiceGrpc;
import dev.memoryd.v1.GetAgentRequest;
import dev.memoryd.v1.UpdateAgentRequest;
import java.time.Duration;

/** An agent and the settings of its sessions. Made by {@link MemoryClient#agent}; it exists by being named. */
public final class Agent {
  private final Caller caller;
  private final String name;

  Agent(Caller caller, String name) {
    this.caller = caller;
    this.name = Protos.text(name, "name");
  }

  /** The agent's name. */
  public String name() {
    return name;
  }

  /** The same agent with another timeout. */
  public Agent withTimeout(Duration timeout) {
    return new Agent(caller.within(timeout), name);
  }

  /** Reads the agent's settings; those of an agent that was never updated are empty. */
  public AgentInfo info() {
    GetAgentRequest request = GetAgentRequest.newBuilder().setAgent(name).build();
    return Protos.agent(caller.call(AgentServiceGrpc.getGetAgentMethod(), request).getAgent());
  }

  /**
   * Changes the agent's settings, and gives them; servers may use the old ones for up to 5 seconds more. Not tried again by
   * itself.
   */
  public AgentInfo update(AgentUpdate update) {
    FieldMask.Builder mask = FieldMask.newBuilder();
    dev.memoryd.v1.Agent.Builder agent =
        dev.memoryd.v1.Agent.newBuilder().setAgent(name).setEtag(Protos.optional(update.etag(), "etag"));
    if (update.policy() != null) {
      agent.setPolicy(Protos.policy(update.policy()));
      mask.addPaths("policy");
    }
    if (update.loadMemory() != null) {
      agent.setLoadMemory(update.loadMemory());
      mask.addPaths("load_memory");
    }
    if (update.runRetention() != null) {
      if (!update.runRetention().equals(AgentUpdate.SERVERS_DEFAULT)) {
        agent.setRunRetention(Protos.duration(update.runRetention()));
      }
      mask.addPaths("run_retention");
    }
    if (mask.getPathsCount() == 0) {
      throw new IllegalArgumentException("nothing to update: give policy, loadMemory or runRetention");
    }
    UpdateAgentRequest request = UpdateAgentRequest.newBuilder().setAgent(agent).setUpdateMask(mask).build();
    return Protos.agent(caller.call(AgentServiceGrpc.getUpdateAgentMethod(), request).getAgent());
  }

  @Override
  public String toString() {
    return "Agent[" + name + "]";
  }
}
