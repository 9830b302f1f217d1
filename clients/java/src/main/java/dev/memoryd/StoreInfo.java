package dev.memoryd;

import java.util.List;

/**
 * A store of the server.
 *
 * @param name the name in the server's settings
 * @param type the kind: {@code in_memory}, {@code sqlite}, {@code postgresql}, {@code mysql} (MariaDB too), {@code
 *     redis} or {@code mongodb}
 * @param reachable whether it answered just now, within 2 seconds
 * @param durable whether what was acknowledged survives the loss of the server's process and of its machine's
 *     power
 * @param isDefault whether requests that name no store use it
 * @param capabilities the powers that stores may lack, each with a reason where it is missing
 */
public record StoreInfo(
    String name,
    String type,
    boolean reachable,
    boolean durable,
    boolean isDefault,
    List<Capability> capabilities) {
  /** Makes it. */
  public StoreInfo {
    capabilities = List.copyOf(capabilities);
  }

  /**
   * A power that a store may lack.
   *
   * @param name {@code shared} (several servers may use the store at once) or {@code durable}; more may come
   * @param supported whether the store has it
   * @param reason why the store lacks it, and what to do instead; empty when it is supported
   */
  public record Capability(String name, boolean supported, String reason) {}
}
