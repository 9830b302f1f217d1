"""memoryd: the memory service for agents written in any language."""
