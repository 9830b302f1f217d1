package dev.memoryd;

/** In which order messages are listed. */
public enum ListOrder {
  // In the order of the API's numbers, which begin with 1 here.
  /** Oldest first. */
  ASCENDING,
  /** Newest first. */
  DESCENDING;

  dev.memoryd.v1.ListOrder toApi() {
    return dev.memoryd.v1.ListOrder.forNumber(ordinal() + 1);
  }
}
