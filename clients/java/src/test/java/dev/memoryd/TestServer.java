package dev.memoryd;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A real server on a port of its own. */
final class TestServer implements AutoCloseable {
  private static final Pattern SERVING = Pattern.compile("memoryd serves on (\\S+)");
  private static TestServer shared;

  private final Process process;
  private final String address;

  private TestServer(Process process, String address) {
    this.process = process;
    this.address = address;
  }

  /** The server of the tests that change nothing of it: two stores in memory. */
  static synchronized TestServer shared() {
    if (shared == null) {
      shared =
          start(
              "127.0.0.1:0",
              "--store",
              "main=memory://",
              "--store",
              "other=memory://",
              "--default-store",
              "main");
      Runtime.getRuntime().addShutdownHook(new Thread(shared::close));
    }
    return shared;
  }

  static TestServer start(String listen, String... flags) {
    List<String> command = new ArrayList<>(List.of(binary(), "serve", "--listen", listen));
    command.addAll(Arrays.asList(flags));
    try {
      Process process = builder(command).start();
      CompletableFuture<String> address = new CompletableFuture<>();
      Thread reader =
          new Thread(
              () -> {
                StringBuilder said = new StringBuilder();
                try (BufferedReader lines = process.inputReader()) {
                  for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    said.append(line).append('\n');
                    Matcher found = SERVING.matcher(line);
                    if (found.find()) {
                      address.complete(found.group(1));
                    }
                  }
                } catch (IOException ended) {
                  said.append(ended);
                }
                address.completeExceptionally(new IllegalStateException("memoryd did not serve: " + said));
              });
      reader.setDaemon(true);
      reader.start();
      return new TestServer(process, address.get(60, TimeUnit.SECONDS));
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    } catch (Exception failed) {
      throw new IllegalStateException(failed);
    }
  }

  static void run(String... arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of(binary()));
    command.addAll(Arrays.asList(arguments));
    Process process = builder(command).start();
    String said = new String(process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IllegalStateException(said);
    }
  }

  private static ProcessBuilder builder(List<String> command) {
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().keySet().removeIf(name -> name.startsWith("MEMORYD_"));
    return builder;
  }

  private static String binary() {
    String given = System.getenv("TEST_MEMORYD");
    if (given != null) {
      return given;
    }
    for (String folder : System.getenv("PATH").split(File.pathSeparator)) {
      Path found = Path.of(folder, "memoryd");
      if (Files.isExecutable(found)) {
        return found.toString();
      }
    }
    Path inRepository = Path.of("../../.venv/bin/memoryd");
    if (Files.isExecutable(inRepository)) {
      return inRepository.toString();
    }
    throw new IllegalStateException(
        "the tests need a server: put memoryd on the PATH, run `make install` in the repository, or name it in "
            + "TEST_MEMORYD");
  }

  String address() {
    return address;
  }

  MemoryClient client() {
    return MemoryClient.connect(address);
  }

  void kill() throws InterruptedException {
    process.destroyForcibly().waitFor();
  }

  /** Drains the server. */
  @Override
  public void close() {
    process.destroy();
    try {
      process.waitFor(20, TimeUnit.SECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
  }
}
