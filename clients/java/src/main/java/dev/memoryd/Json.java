package dev.memoryd;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as plain values: {@code Map<String, Object>} in the order of the text, {@code List<Object>}, String, Boolean, null, and
 * numbers: Long or BigInteger for integers, Double for others, or BigDecimal where a double is not exactly what stands there.
 */
public final class Json {
  private static final int MOST_NESTED = 900;
  private static final int MOST_DIGITS = 4_300;

  private Json() {}

  /** Text that is not JSON, or nests too deeply. */
  public static final class Unreadable extends Exception {
    private static final long serialVersionUID = 1L;

    Unreadable(String message) {
      super(message, null, false, false);
    }
  }

  /** The value of JSON text. Of a key that comes twice, the last value counts. */
  public static Object read(String text) throws Unreadable {
    Reader reader = new Reader(text);
    Object value = reader.value(0);
    reader.space();
    if (reader.at < text.length()) {
      throw reader.bad();
    }
    return value;
  }

  /**
   * Compact JSON of a value, which UTF-8 can encode: halves of surrogate pairs are escaped, other characters are not.
   *
   * @throws IllegalArgumentException for what JSON cannot hold
   */
  public static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(value, out, 0);
    return out.toString();
  }

  /** Text as it is; the JSON text of what else there is. */
  static String text(Object value) {
    return value instanceof String text ? text : write(value);
  }

  private static void write(Object value, StringBuilder out, int depth) {
    if (depth > MOST_NESTED) {
      throw new IllegalArgumentException("values that nest more than " + MOST_NESTED + " levels deep");
    }
    if (value == null || value instanceof Boolean) {
      out.append(value);
    } else if (value instanceof CharSequence text) {
      quote(text.toString(), out);
    } else if (value instanceof Number number) {
      writeNumber(number, out);
    } else if (value instanceof Map<?, ?> map) {
      char between = '{';
      for (Map.Entry<?, ?> entry : map.entrySet()) {
        if (!(entry.getKey() instanceof String key)) {
          throw new IllegalArgumentException("a key that is no String");
        }
        out.append(between);
        between = ',';
        quote(key, out);
        out.append(':');
        write(entry.getValue(), out, depth + 1);
      }
      out.append(between == '{' ? "{}" : "}");
    } else if (value instanceof Iterable<?> items) {
      char between = '[';
      for (Object item : items) {
        out.append(between);
        between = ',';
        write(item, out, depth + 1);
      }
      out.append(between == '[' ? "[]" : "]");
    } else {
      throw new IllegalArgumentException("a value of type " + value.getClass().getName());
    }
  }

  private static void writeNumber(Number number, StringBuilder out) {
    if (number instanceof Double || number instanceof Float) {
      if (!Double.isFinite(number.doubleValue())) {
        throw new IllegalArgumentException("a number that is not finite");
      }
      out.append(number instanceof Double exact ? shortest(exact) : number.toString());
    } else if (number instanceof Long
        || number instanceof Integer
        || number instanceof Short
        || number instanceof Byte
        || number instanceof BigInteger
        || number instanceof BigDecimal) {
      out.append(number);
    } else {
      throw new IllegalArgumentException("a number of type " + number.getClass().getName());
    }
  }

  /** The shortest decimal that stands for a double, as other languages write it: 0.0001, 1e+300. */
  private static String shortest(double number) {
    if (number == 0) {
      return Double.toString(number);
    }
    BigDecimal exact = new BigDecimal(number);
    BigDecimal near = exact;
    for (int digits = 1; digits <= 17; digits++) {
      near = exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
      if (near.doubleValue() == number) {
        break;
      }
    }
    near = near.stripTrailingZeros();
    int exponent = near.precision() - near.scale() - 1;
    if (exponent >= -4 && exponent < 16) {
      String plain = near.toPlainString();
      return plain.indexOf('.') < 0 ? plain + ".0" : plain;
    }
    String all = near.unscaledValue().abs().toString();
    String fraction = all.length() > 1 ? "." + all.substring(1) : "";
    String power = String.format("%s%02d", exponent < 0 ? "-" : "+", Math.abs(exponent));
    return (near.signum() < 0 ? "-" : "") + all.charAt(0) + fraction + "e" + power;
  }

  /**
   * A value in the types that {@link #read} gives: a copy of it, with Longs for smaller integers, say.
   *
   * @throws IllegalArgumentException for what JSON cannot hold
   */
  public static Object plain(Object value) {
    return plain(value, 0);
  }

  private static Object plain(Object value, int depth) {
    if (depth > MOST_NESTED) {
      throw new IllegalArgumentException("values that nest more than " + MOST_NESTED + " levels deep");
    }
    if (value instanceof CharSequence text) {
      return text.toString();
    }
    if (value instanceof Map<?, ?> map) {
      Map<String, Object> copy = new LinkedHashMap<>();
      map.forEach(
          (key, inner) -> {
            if (!(key instanceof String name)) {
              throw new IllegalArgumentException("a key that is no String");
            }
            copy.put(name, plain(inner, depth + 1));
          });
      return copy;
    }
    if (value instanceof Iterable<?> items) {
      List<Object> copy = new ArrayList<>();
      items.forEach(item -> copy.add(plain(item, depth + 1)));
      return copy;
    }
    if (value instanceof Integer || value instanceof Short || value instanceof Byte) {
      return ((Number) value).longValue();
    }
    if (value instanceof BigInteger number && number.bitLength() < Long.SIZE) {
      return number.longValue();
    }
    if (value instanceof Float number) {
      return Double.parseDouble(number.toString());
    }
    if (value == null
        || value instanceof Boolean
        || value instanceof Long
        || value instanceof Double
        || value instanceof BigInteger
        || value instanceof BigDecimal) {
      return value;
    }
    throw new IllegalArgumentException("a value of type " + value.getClass().getName());
  }

  private static void quote(String text, StringBuilder out) {
    out.append('"');
    for (int at = 0; at < text.length(); at++) {
      char unit = text.charAt(at);
      switch (unit) {
        case '"' -> out.append("\\\"");
        case '\\' -> out.append("\\\\");
        case '\n' -> out.append("\\n");
        case '\r' -> out.append("\\r");
        case '\t' -> out.append("\\t");
        case '\b' -> out.append("\\b");
        case '\f' -> out.append("\\f");
        default -> {
          if (unit < ' ') {
            escape(unit, out);
          } else if (!Character.isSurrogate(unit)) {
            out.append(unit);
          } else if (at + 1 < text.length() && Character.isSurrogatePair(unit, text.charAt(at + 1))) {
            out.append(unit).append(text.charAt(++at));
          } else {
            escape(unit, out);
          }
        }
      }
    }
    out.append('"');
  }

  private static void escape(char unit, StringBuilder out) {
    out.append(String.format("\\u%04x", (int) unit));
  }

  /** Whether UTF-8 can encode the text: whether it holds no half of a surrogate pair. */
  public static boolean encodable(String text) {
    for (int at = 0; at < text.length(); at++) {
      char unit = text.charAt(at);
      if (Character.isSurrogate(unit)) {
        if (at + 1 >= text.length() || !Character.isSurrogatePair(unit, text.charAt(at + 1))) {
          return false;
        }
        at++;
      }
    }
    return true;
  }

  private static final class Reader {
    private final String text;
    private int at;

    Reader(String text) {
      this.text = text;
    }

    Unreadable bad() {
      return new Unreadable("no JSON at character " + at);
    }

    void space() {
      while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
        at++;
      }
    }

    Object value(int depth) throws Unreadable {
      space();
      if (at >= text.length() || depth > MOST_NESTED) {
        throw bad();
      }
      return switch (text.charAt(at)) {
        case '{' -> object(depth);
        case '[' -> array(depth);
        case '"' -> string();
        case 't' -> word("true", true);
        case 'f' -> word("false", false);
        case 'n' -> word("null", null);
        default -> number();
      };
    }

    private Object word(String word, Object value) throws Unreadable {
      if (!text.startsWith(word, at)) {
        throw bad();
      }
      at += word.length();
      return value;
    }

    private boolean took(char wanted) {
      if (at < text.length() && text.charAt(at) == wanted) {
        at++;
        return true;
      }
      return false;
    }

    private void take(char wanted) throws Unreadable {
      if (!took(wanted)) {
        throw bad();
      }
    }

    private Map<String, Object> object(int depth) throws Unreadable {
      Map<String, Object> map = new LinkedHashMap<>();
      at++;
      space();
      if (took('}')) {
        return map;
      }
      do {
        space();
        if (at >= text.length() || text.charAt(at) != '"') {
          throw bad();
        }
        String key = string();
        space();
        take(':');
        map.put(key, value(depth + 1));
        space();
      } while (took(','));
      take('}');
      return map;
    }

    private List<Object> array(int depth) throws Unreadable {
      List<Object> list = new ArrayList<>();
      at++;
      space();
      if (took(']')) {
        return list;
      }
      do {
        list.add(value(depth + 1));
        space();
      } while (took(','));
      take(']');
      return list;
    }

    private String string() throws Unreadable {
      StringBuilder out = new StringBuilder();
      at++;
      while (at < text.length()) {
        char unit = text.charAt(at++);
        if (unit == '"') {
          return out.toString();
        }
        if (unit < ' ') {
          throw bad();
        }
        out.append(unit == '\\' ? escaped() : unit);
      }
      throw bad();
    }

    private char escaped() throws Unreadable {
      if (at >= text.length()) {
        throw bad();
      }
      char unit = text.charAt(at++);
      return switch (unit) {
        case '"', '\\', '/' -> unit;
        case 'n' -> '\n';
        case 'r' -> '\r';
        case 't' -> '\t';
        case 'b' -> '\b';
        case 'f' -> '\f';
        case 'u' -> hex();
        default -> throw bad();
      };
    }

    private char hex() throws Unreadable {
      int value = 0;
      for (int digits = 0; digits < 4; digits++) {
        char unit = at < text.length() ? text.charAt(at++) : 'x';
        int digit = unit < 128 ? Character.digit(unit, 16) : -1;
        if (digit < 0) {
          throw bad();
        }
        value = value << 4 | digit;
      }
      return (char) value;
    }

    private Object number() throws Unreadable {
      int start = at;
      took('-');
      if (!took('0')) {
        digits();
      }
      int end = at;
      if (took('.')) {
        digits();
      }
      if (took('e') || took('E')) {
        if (!took('+')) {
          took('-');
        }
        digits();
      }
      String number = text.substring(start, at);
      if (end == at) {
        return integer(number);
      }
      double near = Double.parseDouble(number);
      if (Double.isFinite(near) && new BigDecimal(Double.toString(near)).compareTo(decimal(number)) == 0) {
        return near;
      }
      return decimal(number);
    }

    private Object integer(String number) throws Unreadable {
      if (number.length() <= 18) {
        return Long.parseLong(number);
      }
      if (number.length() > MOST_DIGITS) {
        throw bad();
      }
      BigInteger value = new BigInteger(number);
      return value.bitLength() < Long.SIZE ? (Object) value.longValue() : value;
    }

    private BigDecimal decimal(String number) throws Unreadable {
      try {
        return new BigDecimal(number);
      } catch (NumberFormatException beyond) {
        throw bad();
      }
    }

    private void digits() throws Unreadable {
      int start = at;
      while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
        at++;
      }
      if (at == start) {
        throw bad();
      }
    }
  }
}
