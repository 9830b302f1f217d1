package dev.memoryd;

import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.Channels;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystemLoopException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.NotLinkException;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Set;

/**
 * Reading one file of a folder beneath a root: best effort, bounded, and never out of the folder.
 *
 * <p>Whoever can write to a root (that of a cloned project, say) must not make the client read something else, wait, or run out
 * of memory. So each part of the path is looked at before it is opened, from the folder that it is in, and no link is followed
 * but by the client itself: that of a folder within the root, and that of the file within its folder, since not all that is in a
 * project is for the model's eyes. Nor is one that appears in between: the file is unreadable then.
 *
 * @param content its bytes; null when there is no such file, or {@code unreadable} says why it could not be read
 * @param unreadable why, in a few words; else empty
 * @param fileKey which file it is, when it was read and the file system tells
 */
record FileReading(byte[] content, String unreadable, Object fileKey) {
  /** The most bytes of a memory file (a limit of the server). */
  static final int MOST_BYTES = 1_048_576;

  /** Symbolic links that one path may lead over, as on Linux: more are a circle. */
  private static final int MOST_LINKS = 40;

  private static final String OUTSIDE = "a symbolic link leads out of its folder";
  private static final String LINKED_TWICE = "it is a symbolic link in a folder that is reached over one";
  private static final String CIRCLE = "its symbolic links go in a circle, or change";

  private static final class Unreadable extends Exception {
    private static final long serialVersionUID = 1L;

    Unreadable(String why) {
      super(why, null, false, false);
    }
  }

  /**
   * Reads a file of at most 1 MiB. The folders lead to it from the root: over links that stay in the root, which may be one
   * itself. The file may be a link that stays in its folder, where no link led there.
   */
  static FileReading read(Path root, List<String> folders, String name) {
    try (DirectoryStream<Path> top = Files.newDirectoryStream(root)) {
      if (top instanceof SecureDirectoryStream<Path> secure) {
        return walked(secure, root, folders, name);
      }
      return resolved(root, folders, name);
    } catch (NoSuchFileException absent) {
      return new FileReading(null, "", null);
    } catch (Unreadable why) {
      return unreadable(why.getMessage());
    } catch (AccessDeniedException denied) {
      return unreadable("it may not be read by this user");
    } catch (NotDirectoryException noFolder) {
      return unreadable("a part of its path is not a folder");
    } catch (FileSystemLoopException | NotLinkException changing) {
      return unreadable(CIRCLE);
    } catch (FileSystemException failed) {
      return unreadable(reason(failed));
    } catch (IOException | InvalidPathException | SecurityException failed) {
      return unreadable(failed.getClass().getSimpleName());
    }
  }

  private static FileReading unreadable(String why) {
    return new FileReading(null, why, null);
  }

  private static String reason(FileSystemException failed) {
    String reason = failed.getReason() == null ? failed.getClass().getSimpleName() : failed.getReason();
    if (reason.contains("Not a directory")) {
      return "a part of its path is not a folder";
    }
    return reason.contains("symbolic links") ? CIRCLE : reason;
  }

  private static FileReading walked(
      SecureDirectoryStream<Path> top, Path root, List<String> folders, String name)
      throws IOException, Unreadable {
    try (Walk walk = new Walk(top, root)) {
      for (String folder : folders) {
        walk.left.add(folder);
      }
      walk.toFolder();
      // Two links together would lead to any file: that of the folder makes any folder the file's own.
      try (Walk inner = new Walk(walk.folder(), walk.path)) {
        inner.followsLinks = walk.links == 0;
        inner.left.add(name);
        return inner.readFile();
      }
    }
  }

  /** A walk from an open folder along names, with no link followed out of that folder. */
  private static final class Walk implements AutoCloseable {
    private final Deque<String> left = new ArrayDeque<>();
    private final Deque<SecureDirectoryStream<Path>> opened = new ArrayDeque<>();
    private final SecureDirectoryStream<Path> top;
    private final Path root;
    private Path path;
    private boolean followsLinks = true;
    private int links;

    /** The path of the top is only to know where in it a link leads; what is opened is opened from the top. */
    Walk(SecureDirectoryStream<Path> top, Path root) {
      this.top = top;
      this.root = root;
      this.path = root;
    }

    SecureDirectoryStream<Path> folder() {
      return opened.isEmpty() ? top : opened.getLast();
    }

    void toFolder() throws IOException, Unreadable {
      while (!left.isEmpty()) {
        BasicFileAttributes found = step();
        if (found != null) {
          enter(found);
        }
      }
    }

    FileReading readFile() throws IOException, Unreadable {
      while (!left.isEmpty()) {
        BasicFileAttributes found = step();
        if (found == null) {
          continue;
        }
        if (left.size() > 1) {
          enter(found);
          continue;
        }
        checkKind(found);
        Path name = Path.of(left.remove());
        try (SeekableByteChannel channel =
            folder().newByteChannel(name, Set.of(StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS))) {
          return new FileReading(content(channel), "", found.fileKey());
        }
      }
      throw new Unreadable("it is a folder, not a file");
    }

    /** Looks at the next name; null when it was a link or led up, and is done with. */
    private BasicFileAttributes step() throws IOException, Unreadable {
      String name = left.element();
      if (name.equals("..")) {
        left.remove();
        if (opened.isEmpty()) {
          throw new Unreadable(OUTSIDE);
        }
        opened.removeLast().close();
        path = path.getParent();
        return null;
      }
      BasicFileAttributes found =
          folder()
              .getFileAttributeView(Path.of(name), BasicFileAttributeView.class, LinkOption.NOFOLLOW_LINKS)
              .readAttributes();
      if (!found.isSymbolicLink()) {
        return found;
      }
      if (!followsLinks) {
        throw new Unreadable(LINKED_TWICE);
      }
      if (++links > MOST_LINKS) {
        throw new Unreadable(CIRCLE);
      }
      Path target = Files.readSymbolicLink(path.resolve(name));
      left.remove();
      if (target.isAbsolute()) {
        target = inside(target);
        leaveAll();
      }
      Deque<String> names = new ArrayDeque<>();
      for (Path part : target) {
        String text = part.toString();
        if (!text.isEmpty() && !text.equals(".")) {
          names.addFirst(text);
        }
      }
      names.forEach(left::addFirst);
      return null;
    }

    private void enter(BasicFileAttributes found) throws IOException, Unreadable {
      if (!found.isDirectory()) {
        throw new Unreadable("a part of its path is not a folder");
      }
      String name = left.remove();
      opened.addLast(folder().newDirectoryStream(Path.of(name), LinkOption.NOFOLLOW_LINKS));
      path = path.resolve(name);
    }

    /** An absolute path, as it is to be walked from the top. */
    private Path inside(Path target) throws IOException, Unreadable {
      for (Path base : List.of(root.toAbsolutePath().normalize(), root.toRealPath())) {
        if (target.startsWith(base)) {
          return base.relativize(target);
        }
      }
      throw new Unreadable(OUTSIDE);
    }

    private void leaveAll() throws IOException {
      while (!opened.isEmpty()) {
        opened.removeLast().close();
      }
      path = root;
    }

    @Override
    public void close() throws IOException {
      leaveAll();
    }
  }

  /** Reads the file where a platform cannot walk: what changes between look and opening is not noticed. */
  private static FileReading resolved(Path root, List<String> folders, String name)
      throws IOException, Unreadable {
    Path base = root.toRealPath();
    Path straight = base;
    for (String folder : folders) {
      straight = straight.resolve(folder);
    }
    Path folder = straight.toRealPath();
    Path file = folder.resolve(name).toRealPath();
    if (!folder.startsWith(base)) {
      throw new Unreadable(OUTSIDE);
    }
    if (!folder.equals(straight) && !file.equals(folder.resolve(name))) {
      throw new Unreadable(LINKED_TWICE);
    }
    if (!file.startsWith(folder)) {
      throw new Unreadable(OUTSIDE);
    }
    BasicFileAttributes found =
        Files.readAttributes(file, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    checkKind(found);
    try (SeekableByteChannel channel =
        Files.newByteChannel(file, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
      return new FileReading(content(channel), "", found.fileKey());
    }
  }

  private static void checkKind(BasicFileAttributes found) throws Unreadable {
    if (found.isDirectory()) {
      throw new Unreadable("it is a folder, not a file");
    }
    if (!found.isRegularFile()) {
      throw new Unreadable("it is a pipe, a socket or a device, not a file");
    }
  }

  private static byte[] content(SeekableByteChannel channel) throws IOException, Unreadable {
    InputStream stream = Channels.newInputStream(channel);
    byte[] content = channel.size() > MOST_BYTES ? new byte[MOST_BYTES + 1] : stream.readNBytes(MOST_BYTES + 1);
    if (content.length > MOST_BYTES) {
      throw new Unreadable(String.format(java.util.Locale.ROOT, "it is larger than %,d bytes", MOST_BYTES));
    }
    return content;
  }
}
