/** Where the SDK tells what nobody is there to catch: a watch that broke off, memory that could not be rendered. */
export interface Logger {
  /** Something that a person should know. */
  warn(message: string): void;
  /** That something goes on again. */
  info(message: string): void;
}

/** Warnings go to the console, all else nowhere. */
export const DEFAULT_LOGGER: Logger = {
  warn: (message) => {
    console.warn(`memoryd: ${message}`);
  },
  info: () => {},
};
