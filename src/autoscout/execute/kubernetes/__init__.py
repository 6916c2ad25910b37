"""Trials as Jobs of a Kubernetes cluster, driven through kubectl."""

from autoscout.execute.kubernetes.executor import KubernetesExecutor

__all__ = ["KubernetesExecutor"]
