"""The benchmarks: `make bench`, or `python -m tests.bench --help`.

What is measured is what the service adds to an RPC. A call of grpc.aio costs what it costs on the machine at hand, so
every operation is compared with a *floor*: an RPC with the identical request and a prebuilt answer of the same type and
size, through the same server, its options and all its interceptors. `floor_ratio` is the operation's p50 over that of
the floor. To show that the floor itself is low, it is compared with a *bare* grpc.aio server, without any of ours.

All that is compared is measured interleaved, in short slices that take turns, so that whatever else the machine does
meets all sides alike. A round is a few slices of each; a ratio is the median over the rounds.

    histories.py    the messages that histories hold
    memories.py     the memory that is rendered
    runs.py         the runs that agents have, and how they are loaded
    workers.py      who claims them, commits their steps and renews their leases
    sessions.py     which sessions a run needs, and how they are loaded
    operations.py   the calls that are measured
    floor.py        the RPC that answers at once
    server.py       the server's process, load.py the one that fills a database, bare.py the bare server's
    processes.py    starting these, and their memory
    measuring.py    slices, rounds, percentiles, ratios
    cases.py        what is measured against what
    profiling.py    where the server spends its time
    bars.py         what is to be reached
    report.py       the table and the files
"""
