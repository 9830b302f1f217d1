"""memoryd, with leases of folds that end after three seconds, so that no test waits for those of a killed server long.

python short_leases.py MEMORYD ARGUMENTS
"""

from __future__ import annotations

import sys
from typing import Final

SECONDS: Final = 3


def main() -> None:
    from memoryd_server import cli, limits

    vars(limits)["FOLD_LEASE_SECONDS"] = SECONDS
    sys.argv = sys.argv[1:]
    cli.main()


if __name__ == "__main__":
    main()
