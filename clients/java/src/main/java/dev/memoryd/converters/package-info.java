/**
 * Converters between memoryd's messages and those of model providers, as plain JSON values.
 *
 * <p>The way there and back loses nothing: what a Message has no field for is noted in its {@code extra}. A message is only read
 * together with the notes of the format that is written, so a conversation may come from one provider and go on with another.
 */
package dev.memoryd.converters;
