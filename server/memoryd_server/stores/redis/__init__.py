"""The store on Redis, Valkey or a cluster of these."""
