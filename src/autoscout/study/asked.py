"""The block `traffic` of a campaign: what it asks is read once, and kept in the workload, so that a study means the same ever after."""

from __future__ import annotations

from typing import Any

from autoscout.common.fields import shown
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.protocols import Backend
from autoscout.study.campaign import Campaign
from autoscout.traffic.description import WHERE
from autoscout.traffic.read import read_traffic

LENGTHS = ("input_tokens", "output_tokens", "input_spread", "output_spread", "prefix_tokens", "turns", "file", "workload")
"""Fields of a workload that say the same as a traffic."""


def with_traffic(campaign: Campaign, backend: Backend) -> Campaign:
    """The campaign with the traffic that its source tells of in the workload.

    Raises:
        ConfigError: it cannot be read, the system has no requests, or the workload says lengths too.
    """
    block = campaign.traffic
    if block is None:
        return campaign
    if not backend.takes_traffic:
        rule = f"{campaign.system} serves no requests of an API"
        raise ConfigError(Fault(where=WHERE, value=shown(block.source), rule=rule, fix="Leave it out; vllm, sglang and llamacpp take it"))
    twice = [name for name in LENGTHS if name in campaign.workload]
    if twice:
        rule = f"says what {', '.join(twice)} of the workload say too"
        raise ConfigError(Fault(where=WHERE, value=shown(block.source), rule=rule, fix="Give the traffic or these"))
    traffic = read_traffic(block.source, block.over or 0.0, block.windows)
    workload: dict[str, Any] = {**campaign.workload, "workload": "traffic", "traffic": traffic.to_json()}
    return campaign.model_copy(update={"workload": workload, "traffic": None})


__all__ = ["with_traffic"]
