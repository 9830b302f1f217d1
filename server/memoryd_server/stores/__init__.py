"""Stores: the contract and its adapters."""
