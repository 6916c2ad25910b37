"""The part of Kueue's published schemas (kueue.x-k8s.io/v1beta1) that patches may touch, in our own words."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_NAME: Schema = {"type": "string"}
_STOP: Schema = {"type": "string", "enum": ("None", "Hold", "HoldAndDrain")}
_FAIR: Schema = {"fields": {"weight": {"type": "quantity"}}, "open": False}
_RESOURCE: Schema = {
    "fields": {
        "name": _NAME,
        "nominalQuota": {"type": "quantity"},
        "borrowingLimit": {"type": "quantity"},
        "lendingLimit": {"type": "quantity"},
    },
    "needs": ("name", "nominalQuota"),
    "open": False,
}
_FLAVOR: Schema = {
    "fields": {"name": _NAME, "resources": {"type": "array", "items": _RESOURCE, "most": 64}},
    "needs": ("name", "resources"),
}
_GROUP: Schema = {
    "fields": {
        "coveredResources": {"type": "array", "items": _NAME, "most": 64},
        "flavors": {"type": "array", "items": _FLAVOR, "most": 64},
    },
    "needs": ("coveredResources", "flavors"),
}
_PREEMPTION: Schema = {
    "fields": {
        "withinClusterQueue": {"type": "string", "enum": ("Never", "LowerPriority", "LowerOrNewerEqualPriority")},
        "reclaimWithinCohort": {"type": "string", "enum": ("Never", "LowerPriority", "Any")},
        "borrowWithinCohort": {
            "fields": {"policy": {"type": "string", "enum": ("Never", "LowerPriority")}, "maxPriorityThreshold": {"type": "integer"}},
            "open": False,
        },
    },
    "open": False,
}
_FUNGIBILITY: Schema = {
    "fields": {
        "whenCanBorrow": {"type": "string", "enum": ("MayStopSearch", "TryNextFlavor", "Borrow")},
        "whenCanPreempt": {"type": "string", "enum": ("MayStopSearch", "TryNextFlavor", "Preempt")},
        "preference": {"type": "string"},
    },
    "open": False,
}
CLUSTER_QUEUE: Schema = {
    "fields": {
        "spec": {
            "fields": {
                "resourceGroups": {"type": "array", "items": _GROUP, "most": 16},
                "queueingStrategy": {"type": "string", "enum": ("StrictFIFO", "BestEffortFIFO")},
                "preemption": _PREEMPTION,
                "flavorFungibility": _FUNGIBILITY,
                "fairSharing": _FAIR,
                "stopPolicy": _STOP,
            }
        }
    },
    "needs": ("spec",),
}
LOCAL_QUEUE: Schema = {
    "fields": {"spec": {"fields": {"clusterQueue": _NAME, "fairSharing": _FAIR, "stopPolicy": _STOP}, "open": False}},
    "needs": ("spec",),
}
CONFIG_MAP: Schema = {"fields": {"data": {"type": "object"}}, "needs": ("data",)}
