package dev.memoryd;

/** The vocabulary that a session's tokens are counted in. Fixed when the session begins. */
public enum Tokenizer {
  // In the order of the API's numbers.
  /** At creation: the server's default. In an answer: one that this client does not know. */
  UNSPECIFIED,
  /** The vocabulary of GPT-4o and later OpenAI models, counted exactly. */
  O200K_BASE,
  /** The vocabulary of GPT-3.5 and GPT-4, counted exactly. */
  CL100K_BASE,
  /** No vocabulary: one token for every four ASCII characters and one for every other character. */
  ESTIMATE;

  private static final Tokenizer[] VALUES = values();

  dev.memoryd.v1.Tokenizer toApi() {
    return dev.memoryd.v1.Tokenizer.forNumber(ordinal());
  }

  static Tokenizer of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
