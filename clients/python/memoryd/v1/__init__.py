"""The API `memoryd.v1`: code generated from protos/memoryd/v1 by `make gen`. Do not edit."""
