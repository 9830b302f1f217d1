"""The edges of histograms. Each edge costs a series for each set of labels."""

from typing import Final

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""From a read in memory (0.1 ms) to the default deadline of the clients (30 s)."""

FOLD_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600)
"""From a summary of a few messages without a model (10 ms) to `limits.MAX_TASK_LEASE_SECONDS`."""

BATCH: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Parts of a commit, up to `limits.MAX_GROUP_COMMIT_CHANGES`."""

MESSAGES: Final = (0, 1, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 10_000)
"""Messages of a window, around the usual 20 and up to `limits.MAX_WINDOW_MESSAGES`."""

TOKENS: Final = (0, 100, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 1_000_000)
"""Tokens of a window, at the sizes that models take."""
