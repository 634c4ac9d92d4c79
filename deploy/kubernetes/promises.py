"""What a schema can't say of the manifests: that they are safe, and that they fit the program.

    promises.py MANIFESTS VARIABLES

MANIFESTS is what kustomize prints, VARIABLES what `charge-once config-table` prints.
"""

import re
import sys

import yaml

CONFINED = {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as manifests:
        documents = {(one["kind"], one["metadata"]["name"]): one
                     for one in yaml.safe_load_all(manifests)}
    with open(sys.argv[2], encoding="utf-8") as table:
        variables = set(re.findall(r"^\| `([A-Z_]+)`", table.read(), re.MULTILINE))
    assert len(variables) > 20, variables

    deployment = documents["Deployment", "charge-once"]
    job = documents["Job", "charge-once-migrate"]
    for workload in (deployment, job):
        safe(workload["spec"]["template"]["spec"], variables)

    spec = deployment["spec"]
    template = spec["template"]
    labels = template["metadata"]["labels"]
    [container] = template["spec"]["containers"]
    assert spec["replicas"] >= 2
    assert container["args"] == ["serve"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate"]
    # What selects the replicas must not select the Job's pod.
    budget = documents["PodDisruptionBudget", "charge-once"]["spec"]
    service = documents["Service", "charge-once"]["spec"]
    for selector in (spec["selector"]["matchLabels"], budget["selector"]["matchLabels"],
                     service["selector"]):
        assert selector.items() <= labels.items(), selector
        others = job["spec"]["template"]["metadata"]["labels"]
        assert not selector.items() <= others.items(), selector
    assert budget["minAvailable"] < spec["replicas"]

    probes = {probe: container[probe]["httpGet"]["path"]
              for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/livez", "livenessProbe": "/livez",
                      "readinessProbe": "/readyz"}
    port, metrics = container["ports"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["BIND_ADDRESS"].endswith(f":{port['containerPort']}")
    assert environment["METRICS_ADDRESS"].endswith(f":{metrics['containerPort']}")
    assert [one["targetPort"] for one in service["ports"]] == [port["name"]]
    assert environment["MIGRATE_ON_START"] == "false", "the Job migrates, as another role"
    # No command: the image has none but charge-once.
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = int(environment["DRAIN_TIMEOUT"].removesuffix("s"))
    assert template["spec"]["terminationGracePeriodSeconds"] > pause + drain


def safe(pod: dict, variables: set) -> None:
    """Not root, no privilege, no token, nothing to write to, and bounded."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        assert container["securityContext"] == CONFINED
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert not container["image"].endswith(":latest") and ":" in container["image"]
        names = [one["name"] for one in container["env"]]
        assert set(names) <= variables, f"no such variables: {set(names) - variables}"
        secrets = [one for one in container["env"] if one["name"].endswith("URL")]
        assert secrets and all("secretKeyRef" in one["valueFrom"] for one in secrets)


if __name__ == "__main__":
    main()
