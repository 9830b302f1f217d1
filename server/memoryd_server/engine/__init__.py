"""The logic of memoryd, free of gRPC and of any database."""
