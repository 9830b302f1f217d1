package dev.memoryd;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.List;

/**
 * An index as it was read from the disk.
 *
 * @param label its path, as the model is to see it
 * @param reading what became of it
 * @param place where it is, or would be, links resolved; empty when that is not known
 */
record SourceReading(String label, FileReading reading, String place) {
  static SourceReading of(Path root, List<String> folders, String label) {
    Path path = root;
    for (String folder : folders) {
      path = path.resolve(folder);
    }
    FileReading reading = FileReading.read(root, folders, MemorySource.INDEX);
    return new SourceReading(label, reading, placeOf(path.resolve(MemorySource.INDEX)));
  }

  /** Whether both are one file, by whatever way, or would be once it is made. */
  boolean isSameFile(SourceReading other) {
    Object mine = reading.fileKey();
    Object its = other.reading.fileKey();
    if (mine != null && its != null) {
      return mine.equals(its);
    }
    return !place.isEmpty() && place.equals(other.place);
  }

  private static String placeOf(Path path) {
    try {
      return real(path.toAbsolutePath()).toString();
    } catch (IOException | SecurityException unknown) {
      return "";
    }
  }

  private static Path real(Path path) throws IOException {
    try {
      return path.toRealPath();
    } catch (NoSuchFileException absent) {
      Path parent = path.getParent();
      return parent == null ? path : real(parent).resolve(path.getFileName()).normalize();
    }
  }
}
