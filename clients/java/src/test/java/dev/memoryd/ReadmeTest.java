package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What the README shows compiles, and what of it comes to an end runs. */
@Timeout(120)
class ReadmeTest {
  private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

  /** A fragment that waits for the work of others for ever, or is for a server elsewhere: it is compiled alone. */
  private static final Pattern ENDLESS = Pattern.compile("FOREVER|memory\\.claims|session\\.watch|tls\\(true\\)");

  /** What the README's fragments use together. */
  private static final String FRAGMENTS =
      """
      import dev.memoryd.*;
      import dev.memoryd.converters.OpenAi;
      import java.nio.file.Path;
      import java.time.Duration;
      import java.util.List;
      import java.util.Map;

      class Fragments {
        static final MemoryClient memory = MemoryClient.connect("127.0.0.1:7600");
        static final Session session = memory.session("travel");
        static final String runId = "run";

        static String askModel(String instructions, String input) {
          return "A summary.";
        }

        static void goOn(Run run, RunStep last) {}
      """;

  @TempDir Path folder;

  @Test
  void theReadmesProgramRuns() throws Exception {
    List<String> programs = blocks().stream().filter(ReadmeTest::isProgram).toList();
    assertEquals(1, programs.size());
    compile("Example", programs.get(0));
    String output = run("Example");
    // Nothing else: what gRPC logs at a first use is quiet.
    assertTrue(output.matches("5 messages, [0-9]+ tokens\\R"), output);
  }

  @Test
  void theReadmesFragmentsCompileAndRun() throws Exception {
    List<String> fragments = blocks().stream().filter(block -> !isProgram(block)).toList();
    assertFalse(fragments.isEmpty());
    StringBuilder source = new StringBuilder(FRAGMENTS);
    StringBuilder main = new StringBuilder("public static void main(String[] arguments) throws Exception {\n");
    for (int number = 0; number < fragments.size(); number++) {
      String fragment = fragments.get(number);
      source.append("static void fragment" + number + "() throws Exception {\n" + fragment + "}\n");
      if (!ENDLESS.matcher(fragment).find()) {
        main.append("fragment" + number + "();\n");
      }
    }
    source.append(main);
    source.append("memory.close();\nSystem.out.println(\"done\");\n}\n}\n");
    compile("Fragments", source.toString());
    String output = run("Fragments");
    assertTrue(output.strip().endsWith("done"), output);
  }

  private static List<String> blocks() throws IOException {
    List<String> blocks = new ArrayList<>();
    // The client's own, and the first use in that of the repository.
    Matcher found = BLOCK.matcher(Files.readString(Path.of("README.md")) + Files.readString(Path.of("../../README.md")));
    while (found.find()) {
      blocks.add(found.group(1));
    }
    return blocks;
  }

  private static boolean isProgram(String block) {
    return block.contains("public static void main");
  }

  private void compile(String name, String source) throws IOException {
    String pointed = source.replaceAll("(127\\.0\\.0\\.1|localhost):7600", TestServer.shared().address());
    Path file = Files.writeString(folder.resolve(name + ".java"), pointed);
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    StringWriter said = new StringWriter();
    try (StandardJavaFileManager files = compiler.getStandardFileManager(null, null, StandardCharsets.UTF_8)) {
      List<String> options =
          List.of("--release", "17", "-proc:none", "-cp", classPath(), "-d", folder.toString());
      boolean isCompiled =
          compiler.getTask(said, files, null, options, null, files.getJavaFileObjects(file)).call();
      assertTrue(isCompiled, said + source);
    }
  }

  /** What a program prints, in a process of its own as its users start it. */
  private String run(String name) throws IOException, InterruptedException {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    ProcessBuilder builder =
        new ProcessBuilder(java, "-cp", folder + File.pathSeparator + classPath(), name)
            .directory(folder.toFile())
            .redirectErrorStream(true);
    // Not the memory of whoever runs the tests.
    builder.environment().put("OH_PERSISTENCE_DIR", folder.toString());
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), output);
    return output;
  }

  private static String classPath() {
    // Of the tests; surefire tells it here, where it starts them with a manifest.
    return System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
  }
}
