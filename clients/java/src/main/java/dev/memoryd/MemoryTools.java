package dev.memoryd;

import com.google.protobuf.ByteString;
import dev.memoryd.v1.MemoryOwner;
import dev.memoryd.v1.MemoryTool;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * The tools with which a model reads and keeps memory in the store. Made by {@link MemoryClient#renderContext}.
 *
 * <pre>{@code
 * if (context.tools().names().contains(call.name())) {
 *   messages.add(Message.tool(call.id(), context.tools().call(call.name(), call.arguments())));
 * }
 * }</pre>
 *
 * <p>All calls go to the store that the client used when memory was rendered.
 */
public final class MemoryTools {
  /** How many of the newest logs the answer to a read names. */
  private static final int MOST_LOGS = 14;

  private static final Set<String> CARRIED_OUT =
      Set.of("read_memory", "add_memory", "log_memory", "rewrite_memory");
  private static final Pattern DAY = Pattern.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}");

  /** Stands for the etag of an index that is not there. */
  private static final String NO_FILE = "";

  private final Caller caller;
  private final List<MemoryTool> tools;
  private final Map<String, MemoryOwner> owners;
  private final MemoryFiles.WriteOptions writing;
  private final Map<String, Seen> seen = new HashMap<>();

  MemoryTools(Caller caller, List<MemoryTool> tools, Map<String, MemoryOwner> owners, String author) {
    this.caller = caller;
    this.tools = tools.stream().filter(tool -> CARRIED_OUT.contains(tool.getName())).toList();
    this.owners = owners;
    this.writing = MemoryFiles.WriteOptions.DEFAULT.withAuthor(author);
  }

  /** What the model did wrong, in words that it can act on. */
  private static final class Refused extends Exception {
    private static final long serialVersionUID = 1L;

    Refused(String why) {
      super(why, null, false, false);
    }
  }

  /** How much of an index the model has read, from its first line on and of one state of it. */
  private record Seen(String etag, int toLine, int lines) {
    boolean isWhole() {
      return toLine == lines;
    }

    /** With one more page: a gap in front of it stays a gap. */
    Seen after(MemoryPage page) {
      int to = page.fromLine() <= toLine + 1 ? Math.max(toLine, page.toLine()) : toLine;
      return new Seen(etag, to, page.lines());
    }
  }

  /** The names of the tools; none when the store holds no tier. */
  public List<String> names() {
    return tools.stream().map(MemoryTool::getName).toList();
  }

  /** The definitions in the form of OpenAI's Chat Completions. */
  public List<Map<String, Object>> openAi() {
    return tools.stream()
        .map(
            tool ->
                Map.<String, Object>of(
                    "type",
                    "function",
                    "function",
                    Map.of(
                        "name", tool.getName(),
                        "description", tool.getDescription(),
                        "parameters", schema(tool))))
        .toList();
  }

  /** The definitions in the form of Anthropic's Messages. */
  public List<Map<String, Object>> anthropic() {
    return tools.stream()
        .map(
            tool ->
                Map.of(
                    "name", tool.getName(), "description", tool.getDescription(), "input_schema", schema(tool)))
        .toList();
  }

  private static Object schema(MemoryTool tool) {
    try {
      return Json.read(tool.getInputSchema());
    } catch (Json.Unreadable damaged) {
      throw new IllegalStateException("the server sent a tool whose schema is no JSON", damaged);
    }
  }

  /** Carries a call of the model out, with JSON text (as from OpenAI). Like {@link #call(String, Map)}. */
  public String call(String name, String arguments) {
    return called(name, arguments);
  }

  /**
   * Carries a call of the model out, and gives the answer for it: the content of a tool result.
   *
   * <p>What the model did wrong is in the answer, which then begins with {@code Error:}; so is a credential, told by line and
   * kind. What fails for other reasons throws: a {@link MemorydException.Unavailable}, say.
   *
   * @param name the name of the tool
   * @param arguments what the model gave: the object (as from Anthropic)
   */
  public String call(String name, Map<String, ?> arguments) {
    return called(name, arguments);
  }

  private synchronized String called(String name, Object arguments) {
    try {
      if (!names().contains(name)) {
        throw new Refused(
            "there is no such tool; those for memory are: "
                + (tools.isEmpty() ? "none" : String.join(", ", names())));
      }
      Arguments given = new Arguments(arguments);
      return switch (name) {
        case "read_memory" -> read(given);
        case "add_memory" -> add(given);
        case "log_memory" -> log(given);
        default -> rewrite(given);
      };
    } catch (Refused why) {
      return "Error: " + why.getMessage();
    } catch (MemorydException.SecretFound found) {
      return "Error: line %d of %s holds a credential (%s), and memory is no place for it. Nothing was written: take it out"
          .formatted(found.line(), found.field(), found.kind());
    } catch (MemorydException.FieldRequired
        | MemorydException.FieldInvalid
        | MemorydException.FieldTooLarge
        | MemorydException.MemoryFileFull wrong) {
      return "Error: " + wrong.text();
    }
  }

  private MemoryFiles files(String tier) {
    return new MemoryFiles(caller, owners.get(tier));
  }

  private String read(Arguments given) throws Refused {
    String tier = tier(given);
    String day = given.day();
    long fromLine = given.line();
    given.checkNames();
    String name = day == null ? MemorySource.INDEX : day + ".md";
    MemoryFile file;
    try {
      file = files(tier).get(name);
    } catch (MemorydException.MemoryFileNotFound absent) {
      String logs = newestLogs(tier);
      if (day != null) {
        return "Error: there is no " + name + "\n" + logs;
      }
      seen.put(tier, new Seen(NO_FILE, 0, 0));
      return logs + "\nThere is no " + MemorySource.INDEX + " yet: it is made when you add to it.";
    }
    MemoryPage page = MemoryPage.of(file.text(), fromLine);
    if (page == null) {
      throw new Refused(name + " has no line " + fromLine + ": read it from line 1");
    }
    List<String> parts = new ArrayList<>(List.of(newestLogs(tier), page.shown(name)));
    if (day == null) {
      String etag = file.info().etag();
      Seen before = seen.getOrDefault(tier, new Seen(etag, 0, 0));
      if (!before.etag().equals(etag)) {
        before = new Seen(etag, 0, 0);
        if (fromLine > 1) {
          parts.add(
              1, MemorySource.INDEX + " was changed since you read its beginning: read it again from line 1.");
        }
      }
      seen.put(tier, before.after(page));
    }
    return String.join("\n", parts);
  }

  private String add(Arguments given) throws Refused {
    String tier = tier(given);
    List<String> entries = given.texts("entries");
    given.checkNames();
    AddedEntries added = files(tier).add(entries, writing);
    String known = added.skipped() > 0 ? " " + added.skipped() + " were there already, or came twice." : "";
    return "Added to " + MemorySource.INDEX + ": " + added.added() + " of " + entries.size() + " entries." + known;
  }

  private String log(Arguments given) throws Refused {
    String tier = tier(given);
    String text = given.text("text");
    String day = given.day();
    given.checkNames();
    MemoryFileInfo file = files(tier).log(text, day == null ? "" : day, "", writing);
    return "Added to " + file.name() + ".";
  }

  private String rewrite(Arguments given) throws Refused {
    String tier = tier(given);
    String content = given.text("content");
    given.checkNames();
    String index = "the " + tier + " memory's " + MemorySource.INDEX;
    Seen read = seen.get(tier);
    if (read == null) {
      throw new Refused("read " + index + " with read_memory first, then rewrite what it says");
    }
    if (!read.isWhole()) {
      throw new Refused(
          "you have read %d of the %d lines of %s, and a rewrite replaces all: read on with "
              .concat("from_line=%d first, then rewrite what it says")
              .formatted(read.toLine(), read.lines(), index, read.toLine() + 1));
    }
    MemoryFiles files = files(tier);
    ByteString bytes = ByteString.copyFromUtf8(content);
    MemoryFileInfo file;
    try {
      file =
          read.etag().equals(NO_FILE)
              ? files.create(MemorySource.INDEX, bytes, writing)
              : files.put(MemorySource.INDEX, bytes, read.etag(), writing);
    } catch (MemorydException.EtagMismatch changed) {
      seen.remove(tier);
      throw new Refused(
          index
              + " was changed since you read it, and nothing was written: read it with read_memory first, then rewrite "
              + "what it says now");
    }
    // The model knows what it has just written.
    seen.put(tier, new Seen(file.etag(), 0, 0));
    return String.format(java.util.Locale.ROOT, "%s is rewritten: %,d bytes.", MemorySource.INDEX, file.size());
  }

  private String tier(Arguments given) throws Refused {
    String tier = given.text("tier");
    if (!owners.containsKey(tier)) {
      throw new Refused(
          "`tier` can be "
              + owners.keySet().stream().map(name -> "'" + name + "'").collect(Collectors.joining(" or ")));
    }
    return tier;
  }

  private String newestLogs(String tier) {
    // One more than are named: the index comes first.
    List<String> logs =
        files(tier).newest(MOST_LOGS + 1).stream()
            .map(MemoryFileInfo::name)
            .filter(name -> !name.equals(MemorySource.INDEX))
            .limit(MOST_LOGS)
            .toList();
    return logs.isEmpty() ? "There are no logs." : "The newest logs: " + String.join(", ", logs) + ".";
  }

  @Override
  public String toString() {
    return "MemoryTools" + names();
  }

  /** The arguments of a model's call. What is wrong with them is Refused, and never told with their values. */
  private static final class Arguments {
    private final Map<?, ?> values;
    private final List<String> names = new ArrayList<>();

    Arguments(Object given) throws Refused {
      Object value = given;
      if (given instanceof String text) {
        try {
          // Some models send no text at all where there are no arguments.
          value = Json.read(text.isEmpty() ? "{}" : text);
        } catch (Json.Unreadable unreadable) {
          value = null;
        }
      }
      if (!(value instanceof Map<?, ?> map)) {
        throw new Refused("the arguments are no JSON object");
      }
      values = map;
    }

    String text(String name) throws Refused {
      return checked("`" + name + "`", given(name, "a string"));
    }

    List<String> texts(String name) throws Refused {
      if (!(given(name, "an array of strings") instanceof List<?> list)) {
        throw new Refused("`" + name + "` must be an array of strings");
      }
      List<String> texts = new ArrayList<>();
      for (Object item : list) {
        texts.add(checked("`" + name + "[" + texts.size() + "]`", item));
      }
      return texts;
    }

    /** The day in {@code date}; null when it is not given. */
    String day() throws Refused {
      names.add("date");
      Object value = values.get("date");
      if (value == null || value.equals("")) {
        return null;
      }
      String text = checked("`date`", value);
      String day = text.endsWith(".md") ? text.substring(0, text.length() - 3) : text;
      try {
        if (DAY.matcher(day).matches()) {
          return LocalDate.parse(day).toString();
        }
      } catch (DateTimeParseException noDay) {
        // Told below.
      }
      throw new Refused("`date` must be a day of the calendar, as YYYY-MM-DD");
    }

    /** The line in {@code from_line}, from 1, which it is when it is not given. */
    long line() throws Refused {
      names.add("from_line");
      Object value = values.get("from_line");
      if (value == null) {
        return 1;
      }
      long line;
      try {
        // JSON Schema has 3.0 be an integer.
        line = new BigDecimal(value instanceof Number ? value.toString() : "none").longValueExact();
      } catch (ArithmeticException | NumberFormatException noInteger) {
        throw new Refused("`from_line` must be an integer");
      }
      if (line < 1) {
        throw new Refused("`from_line` must be 1 or more: it is the number of a line");
      }
      return line;
    }

    /** Refuses what was given beside what was asked for: a misspelt name would be no argument at all. */
    void checkNames() throws Refused {
      if (!new HashSet<>(names).containsAll(values.keySet())) {
        throw new Refused(
            "there are only the arguments "
                + names.stream().map(name -> "`" + name + "`").collect(Collectors.joining(", ")));
      }
    }

    private Object given(String name, String kind) throws Refused {
      names.add(name);
      Object value = values.get(name);
      if (value == null) {
        throw new Refused("`" + name + "` is missing: give " + kind);
      }
      return value;
    }

    private static String checked(String name, Object value) throws Refused {
      if (!(value instanceof String text)) {
        throw new Refused(name + " must be a string");
      }
      if (!Json.encodable(text)) {
        throw new Refused(name + " holds half of a surrogate pair, which is no character");
      }
      return text;
    }
  }
}
