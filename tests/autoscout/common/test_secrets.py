from __future__ import annotations

import pytest

from autoscout.core.secrecy import hide_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("export HF_TOKEN=hf_abc", "export HF_TOKEN=***"),
        ("OPENAI_API_KEY='sk x y' python serve.py", "OPENAI_API_KEY=*** python serve.py"),
        ("engine --api-key secret --port 80", "engine --api-key *** --port 80"),
        ("engine --token=secret", "engine --token=***"),
        ("postgresql://scout:pass@db/tuning", "postgresql://scout:***@db/tuning"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("token hf_abcdefghijklmnopqrstuvwx used", "token *** used"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert hide_secrets(text) == shown


@pytest.mark.parametrize(
    "text", ["max_num_batched_tokens=8192, num_key_value_heads=8", "--max-tokens 128", "http://127.0.0.1:8000/v1", "MAX_TOKENS=128", "sk-1"]
)
def test_ordinary_settings_stay(text: str) -> None:
    assert hide_secrets(text) == text
