"""Runs inside an environment of another protobuf, whose version it tells on standard error.

Loads all of `memoryd.v1`, makes a stub of every service, and turns the LoadWindowResponse on standard input into an
object and back, onto standard output.
"""

import importlib
import pkgutil
import sys

import google.protobuf
import grpc

import memoryd.v1
from memoryd.v1 import window_service_pb2

for module in pkgutil.iter_modules(memoryd.v1.__path__):
    importlib.import_module(f"memoryd.v1.{module.name}")

with grpc.insecure_channel("127.0.0.1:1") as channel:
    for service in ("Agent", "History", "Store", "Window"):
        module_name = f"memoryd.v1.{service.lower()}_service_pb2_grpc"
        getattr(sys.modules[module_name], f"{service}ServiceStub")(channel)

window = window_service_pb2.LoadWindowResponse.FromString(sys.stdin.buffer.read())
assert window.messages[0].HasField("content"), "an empty content is not an absent one"
assert not window.messages[1].HasField("content"), "an absent content is not an empty one"
assert window.messages[2].content.parts[0].tool_call.arguments == '{"n": 9007199254740993, "n": '
sys.stdout.buffer.write(window.SerializeToString(deterministic=True))
sys.stderr.write(google.protobuf.__version__)
