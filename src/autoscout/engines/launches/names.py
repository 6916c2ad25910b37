"""Flags and variables of a launch that a study does without, by what they are."""

PLACE = frozenset(
    [
        "host",
        "port",
        "uds",
        "root_path",
        "fastapi_root_path",
        "http2",
        "grpc",
        "nccl_port",
        "served_model_name",
        "data_parallel_rpc_port",
        "grpc_port",
        "smg_grpc_port",
        "fd_port",
    ]
)
"""Flags of an address: every trial has one of its own."""
TALK = frozenset(
    [
        "log_level",
        "log_level_http",
        "log_config_file",
        "log_error_stack",
        "log_requests",
        "log_requests_level",
        "log_requests_format",
        "log_requests_target",
        "logging_config",
        "max_log_len",
        "enable_log_requests",
        "enable_log_outputs",
        "enable_log_deltas",
        "uvicorn_log_level",
        "uvicorn_access_log_exclude_prefixes",
        "disable_uvicorn_access_log",
        "disable_uvicorn_metrics_access_log",
        "disable_access_log_for_endpoints",
        "aggregate_engine_logging",
        "disable_fastapi_docs",
        "decode_log_interval",
        "show_time_cost",
    ]
)
"""Flags of what a server prints."""
ACCESS = frozenset(
    [
        "ssl_keyfile",
        "ssl_certfile",
        "ssl_ca_certs",
        "ssl_cert_reqs",
        "ssl_ciphers",
        "enable_ssl_refresh",
        "allow_credentials",
        "allowed_origins",
        "allowed_methods",
        "allowed_headers",
    ]
)
"""Flags of who may reach it, and how."""
MACHINES = frozenset(
    [
        "node_rank",
        "nnodes",
        "master_addr",
        "master_port",
        "dist_init_addr",
        "headless",
        "data_parallel_address",
        "data_parallel_rank",
        "data_parallel_start_rank",
        "data_parallel_external_lb",
        "data_parallel_hybrid_lb",
    ]
)
"""Flags of one machine among several."""
SECRETS = frozenset(["api_key", "hf_token", "admin_api_key", "ssl_keyfile_password"])
SHELL = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "SHELL",
        "PWD",
        "TERM",
        "LANG",
        "PORT",
        "HOST",
        "HOSTNAME",
        "PS1",
        "MODEL",
        "MODEL_PATH",
        "MODEL_NAME",
        "TP",
        "CONC",
        "ISL",
        "OSL",
    ]
)
"""Variables of shells and scripts that an engine does not read."""
DEVICES = frozenset(["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"])

UNUSED = PLACE | TALK | ACCESS | MACHINES | SECRETS
"""All flags that are left out."""

__all__ = ["ACCESS", "DEVICES", "MACHINES", "PLACE", "SECRETS", "SHELL", "TALK", "UNUSED"]
