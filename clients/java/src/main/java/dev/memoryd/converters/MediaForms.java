package dev.memoryd.converters;

import com.google.protobuf.ByteString;
import dev.memoryd.Part.Media;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Media in the forms that providers' JSON has for them: base64 text, data URLs, URLs and file ids. */
final class MediaForms {
  /** The type of an image that is given by reference, whose exact type is not said. */
  static final String ANY_IMAGE = "image/*";

  private static final Pattern DATA_URL = Pattern.compile("data:([^;,]*);base64,");

  private MediaForms() {}

  /** The bytes of base64 text; null when encoding them would not give exactly that text. */
  static ByteString base64Bytes(String text) {
    try {
      ByteString data = ByteString.copyFrom(Base64.getDecoder().decode(text));
      return base64Text(data).equals(text) ? data : null;
    } catch (IllegalArgumentException noBase64) {
      return null;
    }
  }

  static String base64Text(ByteString data) {
    return Base64.getEncoder().encodeToString(data.toByteArray());
  }

  /** The media in a base64 data URL; null for other URLs, and where {@code dataUrl} would not give exactly that one. */
  static Media dataUrlMedia(String url) {
    Matcher found = DATA_URL.matcher(url);
    ByteString data = found.lookingAt() ? base64Bytes(url.substring(found.end())) : null;
    return data == null ? null : new Media(found.group(1), null, data, 0);
  }

  static String dataUrl(String type, ByteString data) {
    return "data:" + type + ";base64," + base64Text(data);
  }

  static Media inPlace(String type, ByteString data) {
    return data == null ? null : new Media(type, null, data, 0);
  }

  /** Whether a reference is a URL, and not a provider's file id. */
  static boolean isUrl(String uri) {
    return uri.contains(":");
  }

  /** A text for media that a format has no form for. */
  static String mention(Media media) {
    String kind = media.type().isEmpty() ? "file" : media.type();
    return media.data() == null
        ? "[" + kind + ": " + media.uri() + "]"
        : "[" + kind + ", " + media.data().size() + " bytes]";
  }
}
