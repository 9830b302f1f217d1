"""The summarizers of a server, as its settings say."""

from __future__ import annotations

from memoryd_server.config import Settings, SettingsError
from memoryd_server.engine.folder import Summarizers
from memoryd_server.summarizers.base import OPENAI


def create_summarizers(settings: Settings) -> Summarizers:
    """Raises: SettingsError that says what to set or to install."""
    endpoint = settings.openai
    if endpoint is None:
        return Summarizers()
    try:
        from memoryd_server.summarizers.openai import OpenAISummarizer
    except ImportError as error:
        raise SettingsError(
            f"openai: the summarizer openai needs {error.name}: install memoryd-server[openai]"
        ) from error
    try:
        summarizer = OpenAISummarizer(
            base_url=endpoint.base_url,
            model=endpoint.model,
            key_variable=endpoint.key_variable or None,
            input_limit=endpoint.input_limit,
            answer_limit=endpoint.answer_limit,
            limit_parameter=endpoint.limit_parameter,
            timeout=endpoint.timeout,
            attempts=endpoint.attempts,
        )
    except ValueError as error:
        raise SettingsError(f"openai: {error}") from error
    return Summarizers({OPENAI: summarizer})
