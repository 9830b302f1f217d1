package dev.memoryd;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.util.Base64;
import java.util.List;

/** Certificates for 127.0.0.1 that vouch for themselves, made by the JDK's keytool. */
final class TestCertificates {
  private static final char[] PASSWORD = "not a secret".toCharArray();

  private TestCertificates() {}

  /** Writes server.pem, server.key and other.pem. */
  static void write(Path folder) throws Exception {
    for (String name : List.of("server", "other")) {
      Path keystore = folder.resolve(name + ".p12");
      Process made =
          new ProcessBuilder(
                  Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
                  "-genkeypair",
                  "-alias",
                  "it",
                  "-keyalg",
                  "EC",
                  "-dname",
                  "CN=" + name,
                  "-ext",
                  "san=ip:127.0.0.1",
                  "-ext",
                  "bc:c",
                  "-validity",
                  "2",
                  "-storetype",
                  "PKCS12",
                  "-keystore",
                  keystore.toString(),
                  "-storepass",
                  new String(PASSWORD))
              .redirectErrorStream(true)
              .start();
      String said = new String(made.getInputStream().readAllBytes());
      if (made.waitFor() != 0) {
        throw new IOException(said);
      }
      KeyStore store = KeyStore.getInstance("PKCS12");
      try (InputStream file = Files.newInputStream(keystore)) {
        store.load(file, PASSWORD);
      }
      Key key = store.getKey("it", PASSWORD);
      Files.writeString(folder.resolve(name + ".pem"), pem("CERTIFICATE", store.getCertificate("it").getEncoded()));
      Files.writeString(folder.resolve(name + ".key"), pem("PRIVATE KEY", key.getEncoded()));
    }
  }

  private static String pem(String kind, byte[] bytes) {
    String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(bytes);
    return "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n";
  }
}
