package dev.memoryd.converters;

import dev.memoryd.Json;
import dev.memoryd.Part;
import dev.memoryd.Part.ToolResult;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * What a provider's message holds beyond the fields of ours: kept in {@code extra}, so that the way back loses nothing.
 *
 * <p>{@code extra} is a JSON object with one key a format. Its value, the source form, says only where the provider's message
 * differs from what the converter would write by itself, so a plain message has none. It never holds a second copy of what the
 * parts hold: texts that a window shortened stay shortened on the way back.
 */
final class SourceForm {
  /** Marks a part that the format says itself, where the converter would otherwise make text of it or leave it out. */
  static final String NATIVE = "native";

  /** Stands for text that is not JSON. */
  static final Object UNREADABLE = new Object();

  private SourceForm() {}

  /** The value of JSON text; UNREADABLE for what is none. */
  static Object jsonValue(String text) {
    try {
      return Json.read(text);
    } catch (Json.Unreadable unreadable) {
      return UNREADABLE;
    }
  }

  /** The source form of a format; empty where there is none. */
  static Map<String, Object> read(String extra, String format) {
    Object forms = extra.isEmpty() ? null : jsonValue(extra);
    return forms instanceof Map<?, ?> map ? noted(map, format) : Map.of();
  }

  /** The {@code extra} that holds a source form. */
  static String write(Map<String, Object> form, String format) {
    return form.isEmpty() ? "" : Json.write(Map.of(format, form));
  }

  /** What a form notes under a key, about parts or calls by their index; empty where it notes nothing. */
  static Map<String, Object> noted(Map<?, ?> form, String key) {
    return asObject(form.get(key), Map.of());
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> asObject(Object value, Map<String, Object> otherwise) {
    // What Json reads has Strings as keys.
    return value instanceof Map<?, ?> map ? (Map<String, Object>) map : otherwise;
  }

  static Map<String, Object> object(Object... pairs) {
    Map<String, Object> map = new LinkedHashMap<>();
    for (int at = 0; at < pairs.length; at += 2) {
      map.put((String) pairs[at], pairs[at + 1]);
    }
    return map;
  }

  static Map<String, Object> with(Map<String, Object> map, String key, Object value) {
    Map<String, Object> copy = new LinkedHashMap<>(map);
    copy.put(key, value);
    return copy;
  }

  /** The value under a key where it is text; else null. */
  static String text(Map<?, ?> map, String key) {
    return map.get(key) instanceof String text ? text : null;
  }

  /**
   * The form for parts of which a window may have left out results: those whose calls are gone. What is noted about the other
   * parts moves with them. Which results are left is not known, so what is noted about results is passed over.
   */
  static Map<String, Object> aligned(Map<String, Object> form, List<Part> parts) {
    if (!(form.get("results") instanceof List<?> places)
        || parts.stream().filter(ToolResult.class::isInstance).count() == places.size()) {
      return form;
    }
    List<Integer> others = new ArrayList<>();
    for (int index = 0; index < parts.size(); index++) {
      if (!(parts.get(index) instanceof ToolResult)) {
        others.add(index);
      }
    }
    Map<String, String> moved = new HashMap<>();
    int next = 0;
    for (long before = 0; before < others.size() + places.size() && next < others.size(); before++) {
      if (!places.contains(before)) {
        moved.put(Long.toString(before), Integer.toString(others.get(next++)));
      }
    }
    Map<String, Object> patch = noted(form, "patch");
    Map<String, Object> content = noted(noted(patch, "in"), "content");
    Map<String, Object> inner = new LinkedHashMap<>(noted(patch, "in"));
    if (content.containsKey("in")) {
      inner.put("content", with(content, "in", moved(noted(content, "in"), moved)));
    }
    Map<String, Object> result = new LinkedHashMap<>(form);
    result.put("content", "list");
    result.put("parts", moved(noted(form, "parts"), moved));
    result.put("patch", with(patch, "in", inner));
    return result;
  }

  private static Map<String, Object> moved(Map<String, Object> notes, Map<String, String> moved) {
    Map<String, Object> result = new LinkedHashMap<>();
    notes.forEach(
        (index, note) -> {
          if (moved.containsKey(index)) {
            result.put(moved.get(index), note);
          }
        });
    return result;
  }

  /** What a field of ours keeps of a value: text that UTF-8 can encode. What it does not comes back by the patch. */
  static String kept(Object value) {
    return value instanceof String text && Json.encodable(text) ? text : "";
  }

  /**
   * The patch that makes the wanted JSON value of the given one; null when they are the same, types included.
   *
   * <p>A patch is an object: {@code is} replaces the value; {@code set} gives an object's keys new values; {@code del} removes
   * keys; {@code in} holds the patches of an object's values or of an array's items (by index, where both arrays have one
   * length).
   */
  static Map<String, Object> difference(Object wanted, Object given) {
    if (wanted instanceof Map<?, ?> && given instanceof Map<?, ?>) {
      return objectDifference(asObject(wanted, Map.of()), asObject(given, Map.of()));
    }
    if (wanted instanceof List<?> wantedItems
        && given instanceof List<?> givenItems
        && wantedItems.size() == givenItems.size()) {
      Map<String, Object> inner = new LinkedHashMap<>();
      for (int index = 0; index < wantedItems.size(); index++) {
        Map<String, Object> patch = difference(wantedItems.get(index), givenItems.get(index));
        if (patch != null) {
          inner.put(Integer.toString(index), patch);
        }
      }
      return inner.isEmpty() ? null : object("in", inner);
    }
    return Objects.equals(wanted, given) ? null : object("is", wanted);
  }

  private static Map<String, Object> objectDifference(Map<String, Object> wanted, Map<String, Object> given) {
    Map<String, Object> set = new LinkedHashMap<>();
    Map<String, Object> inner = new LinkedHashMap<>();
    wanted.forEach(
        (key, value) -> {
          if (!given.containsKey(key)) {
            set.put(key, value);
            return;
          }
          Map<String, Object> patch = difference(value, given.get(key));
          if (patch != null && patch.containsKey("is")) {
            set.put(key, patch.get("is"));
          } else if (patch != null) {
            inner.put(key, patch);
          }
        });
    List<Object> removed = new ArrayList<>(given.keySet().stream().filter(key -> !wanted.containsKey(key)).toList());
    Map<String, Object> whole = new LinkedHashMap<>();
    if (!set.isEmpty()) {
      whole.put("set", set);
    }
    if (!removed.isEmpty()) {
      whole.put("del", removed);
    }
    if (!inner.isEmpty()) {
      whole.put("in", inner);
    }
    return whole.isEmpty() ? null : whole;
  }

  /** The value that a patch makes of the given one. What is no patch, or names what the value lacks, has no effect. */
  static Object patched(Object given, Object patch) {
    if (!(patch instanceof Map<?, ?> notes)) {
      return given;
    }
    if (notes.containsKey("is")) {
      return notes.get("is");
    }
    Map<String, Object> inner = noted(notes, "in");
    if (given instanceof List<?> items) {
      List<Object> result = new ArrayList<>();
      for (Object item : items) {
        String index = Integer.toString(result.size());
        result.add(inner.containsKey(index) ? patched(item, inner.get(index)) : item);
      }
      return result;
    }
    if (given instanceof Map<?, ?>) {
      Map<String, Object> result = new LinkedHashMap<>(asObject(given, Map.of()));
      if (notes.get("del") instanceof List<?> removed) {
        result.keySet().removeAll(removed);
      }
      inner.forEach(
          (key, item) -> {
            if (result.containsKey(key)) {
              result.put(key, patched(result.get(key), item));
            }
          });
      result.putAll(noted(notes, "set"));
      return result;
    }
    return given;
  }
}
