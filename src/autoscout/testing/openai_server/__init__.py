"""A small server that speaks the OpenAI API like vLLM and SGLang, without a model: for tests of everything around an engine.

    python -m autoscout.testing.openai_server --port 8000 --max-num-seqs 64 --max-num-batched-tokens 2048

It batches continuously, so that waiting, batches and limits behave like an engine's, answers with tokens that depend on the prompt alone,
tells its metrics under the engines' names, and fails on request in the engines' own words (`--fault`).
"""
