"""One module a service: decode the request, call the engine, encode the answer."""
