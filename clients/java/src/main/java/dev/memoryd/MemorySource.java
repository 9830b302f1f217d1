package dev.memoryd;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;

/** Where a tier of memory is: in files of this machine, which the client reads itself, or in the store. */
public sealed interface MemorySource {
  /** The file of a tier that is rendered. */
  String INDEX = "MEMORY.md";

  /**
   * The user tier in a folder of this machine, which holds MEMORY.md and daily logs. MEMORY.md is read each time that memory is
   * rendered, and never written. The folder may be a symbolic link; one in it is followed as long as it stays in it.
   *
   * @param folder the folder; {@code ~} in front stands for the home folder
   */
  record UserFiles(Path folder) implements MemorySource {
    /** Makes it. */
    public UserFiles {
      Objects.requireNonNull(folder, "folder");
    }

    /** The usual folder: {@code $OH_PERSISTENCE_DIR/memory} where that is set, else {@code ~/.openhands/memory}. */
    public UserFiles() {
      this(usual());
    }

    private static Path usual() {
      String set = System.getenv("OH_PERSISTENCE_DIR");
      Path home = set == null || set.isEmpty() ? Path.of("~", ".openhands") : Path.of(set);
      return home.resolve("memory");
    }

    SourceReading read() {
      Path expanded = expanded(folder);
      return SourceReading.of(expanded, List.of(), withTilde(expanded.resolve(INDEX)));
    }
  }

  /**
   * The project tier in a workspace of this machine: the folder {@code .openhands/memory} in it, which a team can commit.
   *
   * <p>MEMORY.md is read each time that memory is rendered, and never written. The folder may be reached over symbolic links
   * that stay in the workspace, which may be one itself. MEMORY.md may be one that stays in the folder, where the folder is none:
   * whoever writes the repository must not choose which other file of the workspace the model is shown. A workspace that does
   * not exist is unreadable, and one without the folder has no memory yet.
   *
   * @param workspace the workspace's folder; {@code ~} in front stands for the home folder
   */
  record ProjectFiles(Path workspace) implements MemorySource {
    private static final int MOST_REASON_BYTES = 256;

    /** Makes it. */
    public ProjectFiles {
      Objects.requireNonNull(workspace, "workspace");
    }

    SourceReading read() {
      Path expanded = expanded(workspace);
      SourceReading read = SourceReading.of(expanded, List.of(".openhands", "memory"), ".openhands/memory/" + INDEX);
      if (read.reading().content() == null
          && read.reading().unreadable().isEmpty()
          && !Files.isDirectory(expanded)) {
        String why = cut("there is no folder " + withTilde(expanded), MOST_REASON_BYTES);
        return new SourceReading(read.label(), new FileReading(null, why, null), "");
      }
      return read;
    }
  }

  /**
   * A tier that the client's store keeps.
   *
   * @param owner the user, or the project, who owns it
   */
  record Stored(String owner) implements MemorySource {
    /** Makes it. */
    public Stored {
      if (Protos.text(owner, "owner").isEmpty()) {
        throw new IllegalArgumentException("owner is empty; give the id of a user or of a project");
      }
    }
  }

  private static Path expanded(Path path) {
    if (path.getNameCount() > 0 && !path.isAbsolute() && path.getName(0).toString().equals("~")) {
      Path home = Path.of(System.getProperty("user.home"));
      return path.getNameCount() == 1 ? home : home.resolve(path.subpath(1, path.getNameCount()));
    }
    return path;
  }

  /** A path from the root on, or from the home folder where it is in there, as text that a request can carry. */
  private static String withTilde(Path path) {
    Path whole = path.toAbsolutePath().normalize();
    Path home = Path.of(System.getProperty("user.home")).toAbsolutePath().normalize();
    String label =
        whole.startsWith(home) && !whole.equals(home) ? "~/" + home.relativize(whole) : whole.toString();
    return cut(label.replace(whole.getFileSystem().getSeparator(), "/"), 4_096);
  }

  /** A text cut to what a field of the server takes, in whole characters. */
  private static String cut(String text, int mostBytes) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    int end = Math.min(bytes.length, mostBytes);
    while (end < bytes.length && end > 0 && (bytes[end] & 0xC0) == 0x80) {
      end--;
    }
    return new String(bytes, 0, end, StandardCharsets.UTF_8);
  }
}
