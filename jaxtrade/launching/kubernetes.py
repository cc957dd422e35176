"""Manifests for Kubernetes: a JobSet (jobset.x-k8s.io/v1alpha2) and a TrainJob
(trainer.kubeflow.org/v1alpha1).

One pod is one process, with all GPUs of its node. Both take the folder of runs from a volume claim
that all pods share.
"""

from __future__ import annotations

from typing import Any

from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.launching.job import FINAL, GRACE_S, RESTARTS, Job, checked
from jaxtrade.runs.processes import PORT

WORKER = "worker"  # the replicated job of a JobSet
NODE = "node"  # the replicated job, and the container, of the runtime jax-distributed
RUNTIME = "jax-distributed"
MANAGER = "jaxtrade.launch/cli"  # who patches the runtime, as the TrainJob records it


def jobset(job: Job) -> str:
    """A JobSet as YAML. Raises ConfigError.

    Its headless service (JobSet makes one of the set's name) gives process 0 a host name. If any
    pod fails, all start again, except after an exit code in `FINAL`.
    """
    checked(job, needs_image=True, needs_claim=True)
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [
            {
                "name": "jaxtrade",
                "image": job.image,
                "command": ["jaxtrade", *job.of_node],
                "env": [
                    {
                        "name": "JAX_COORDINATOR_ADDRESS",
                        "value": f"{job.name}-{WORKER}-0-0.{job.name}:{PORT}",
                    },
                    {"name": "JAX_NUM_PROCESSES", "value": str(job.nodes)},
                    {
                        "name": "JAX_PROCESS_ID",
                        "valueFrom": {
                            "fieldRef": {
                                "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"
                            }
                        },
                    },
                ],
                "ports": [{"containerPort": PORT}],
                **_resources(job),
                "volumeMounts": [{"name": "runs", "mountPath": job.mount}],
            }
        ],
        "volumes": [_volume(job)],
    }
    return dump_yaml(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": job.name},
            "spec": {
                "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                "failurePolicy": {
                    "maxRestarts": RESTARTS,
                    "rules": [
                        {
                            "name": "noUseToRestart",
                            "action": "FailJobSet",
                            "onJobFailureReasons": ["PodFailurePolicy"],
                        }
                    ],
                },
                "replicatedJobs": [
                    {
                        "name": WORKER,
                        "replicas": 1,
                        "template": {
                            "spec": {
                                "parallelism": job.nodes,
                                "completions": job.nodes,
                                "completionMode": "Indexed",
                                "backoffLimit": 0,
                                "podFailurePolicy": {
                                    "rules": [
                                        {
                                            "action": "FailJob",
                                            "onExitCodes": {
                                                "containerName": "jaxtrade",
                                                "operator": "In",
                                                "values": list(FINAL),
                                            },
                                        }
                                    ]
                                },
                                "template": {"spec": pod},
                            }
                        },
                    }
                ],
            },
        }
    )


def trainjob(job: Job) -> str:
    """A TrainJob of Kubeflow Trainer v2 as YAML, for its runtime `jax-distributed`. Raises
    ConfigError.

    Trainer sets `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID` itself.
    """
    checked(job, needs_image=True, needs_claim=True)
    patch: dict[str, Any] = {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": NODE,
                        "template": {
                            "spec": {
                                "template": {
                                    "spec": {
                                        "volumes": [_volume(job)],
                                        "containers": [
                                            {
                                                "name": NODE,
                                                "volumeMounts": [
                                                    {"name": "runs", "mountPath": job.mount}
                                                ],
                                            }
                                        ],
                                    }
                                }
                            }
                        },
                    }
                ]
            }
        }
    }
    resources = _resources(job).get("resources")
    return dump_yaml(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": job.name},
            "spec": {
                "runtimeRef": {"name": RUNTIME},
                "trainer": {
                    "image": job.image,
                    "command": ["jaxtrade", *job.of_node],
                    "numNodes": job.nodes,
                    **({} if resources is None else {"resourcesPerNode": resources}),
                },
                "runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": patch}],
            },
        }
    )


def _resources(job: Job) -> dict[str, Any]:
    return {"resources": {"limits": {"nvidia.com/gpu": job.gpus}}} if job.gpus else {}


def _volume(job: Job) -> dict[str, Any]:
    return {"name": "runs", "persistentVolumeClaim": {"claimName": job.claim}}
