package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
  @Test
  void numbersKeepTheirValue() throws Json.Unreadable {
    assertEquals(9_007_199_254_740_993L, Json.read("9007199254740993"));
    assertEquals(new BigInteger("123456789012345678901"), Json.read("123456789012345678901"));
    assertEquals(1.0, Json.read("1.0"));
    assertEquals(-0.0, Json.read("-0.0"));
    assertEquals(new BigDecimal("0.1234567890123456789"), Json.read("0.1234567890123456789"));
    assertEquals(1e300, Json.read("1e300"));
  }

  @Test
  void doublesAreWrittenAsOtherLanguagesDo() {
    Map<Double, String> texts =
        Map.of(
            1.0, "1.0", 0.1, "0.1", 1e300, "1e+300", -0.0, "-0.0", 1e-5, "1e-05", 0.0001, "0.0001", 1e15,
            "1000000000000000.0", 1e16, "1e+16", -2.5e-10, "-2.5e-10", 2e23, "2e+23");
    texts.forEach((number, text) -> assertEquals(text, Json.write(number)));
    assertEquals("5e-324", Json.write(Double.MIN_VALUE));
    assertThrows(IllegalArgumentException.class, () -> Json.write(Double.NaN));
  }

  @Test
  void textsAreEscapedOnlyWhereTheyMustBe() throws Json.Unreadable {
    String text = "a\u0000\"\\\n 🙂 \ud83d";
    assertEquals("\"a\\u0000\\\"\\\\\\n 🙂 \\ud83d\"", Json.write(text));
    assertEquals(text, Json.read(Json.write(text)));
    assertEquals("🙂", Json.read("\"\\ud83d\\ude42\""));
    assertTrue(Json.encodable("🙂"));
    assertFalse(Json.encodable("\ude42\ud83d"));
  }

  @Test
  void valuesComeBack() throws Json.Unreadable {
    String text = "{\"a\":[1,true,null,{\"b\":[]}],\"\":{}}";
    assertEquals(text, Json.write(Json.read(" " + text + "\n")));
    assertEquals(Map.of("a", 2L), Json.read("{\"a\": 1, \"a\": 2}"));
    assertEquals(Arrays.asList(1L, null, 0.5), Json.plain(Arrays.asList((short) 1, null, 0.5f)));
  }

  @Test
  void whatIsNoJsonIsUnreadable() {
    for (String text :
        List.of("", "{", "[1,]", "{\"a\" 1}", "tru", "01", "1.", "+1", "\"\n\"", "\"\\x\"", "NaN", "1 2", "'a'",
            "[".repeat(100_000), "9".repeat(5_000), "\"\\u12\"", "1e", "{1:2}", "1e99999999999")) {
      assertThrows(Json.Unreadable.class, () -> Json.read(text), text);
    }
    assertThrows(IllegalArgumentException.class, () -> Json.write(Map.of(1, 2)));
    assertThrows(IllegalArgumentException.class, () -> Json.write(new Object()));
  }
}
