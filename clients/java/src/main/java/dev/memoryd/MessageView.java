package dev.memoryd;

/** Which messages a list shows. */
public enum MessageView {
  // In the order of the API's numbers, which begin with 1 here.
  /** The current summary first, then the messages that it does not cover. */
  ACTIVE,
  /** Every message that is still stored, and no summary. */
  ALL;

  dev.memoryd.v1.MessageView toApi() {
    return dev.memoryd.v1.MessageView.forNumber(ordinal() + 1);
  }
}
