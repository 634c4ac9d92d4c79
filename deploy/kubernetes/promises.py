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
    daily = documents["CronJob", "charge-once-check"]
    check = daily["spec"]["jobTemplate"]
    for workload in (deployment, job, check):
        safe(workload["spec"]["template"]["spec"], variables)

    spec = deployment["spec"]
    template = spec["template"]
    labels = template["metadata"]["labels"]
    [container] = template["spec"]["containers"]
    assert spec["replicas"] >= 2
    assert container["args"] == ["serve"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate"]
    # What selects the replicas must not select the Jobs' pods.
    budget = documents["PodDisruptionBudget", "charge-once"]["spec"]
    service = documents["Service", "charge-once"]["spec"]
    for selector in (spec["selector"]["matchLabels"], budget["selector"]["matchLabels"],
                     service["selector"]):
        assert selector.items() <= labels.items(), selector
        for other in (job, check):
            others = other["spec"]["template"]["metadata"]["labels"]
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

    # One role each: what reads can't write, and what writes can't migrate.
    keys = [database_of(workload) for workload in (deployment, job, check)]
    assert keys == ["database-url", "migrator-database-url", "reader-database-url"]
    runs_once_a_day(daily["spec"])


def database_of(workload: dict) -> str:
    """The key of the secret that has the URL of the database."""
    [container] = workload["spec"]["template"]["spec"]["containers"]
    [url] = [one for one in container["env"] if one["name"] == "DATABASE_URL"]
    return url["valueFrom"]["secretKeyRef"]["key"]


def runs_once_a_day(daily: dict) -> None:
    """The check runs before the alert about its absence fires, never beside itself, and ends."""
    assert re.fullmatch(r"\d+ \d+ \* \* \*", daily["schedule"]), daily["schedule"]
    assert daily["concurrencyPolicy"] == "Forbid"
    assert 3600 <= daily["startingDeadlineSeconds"] < 24 * 3600
    job = daily["jobTemplate"]["spec"]
    [container] = job["template"]["spec"]["containers"]
    command, option, limit = container["args"]
    assert (command, option) == ("check", "--timeout"), container["args"]
    attempts = 1 + job["backoffLimit"]
    assert job["activeDeadlineSeconds"] > attempts * int(limit.removesuffix("m")) * 60
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["MIGRATE_ON_START"] == "false", "its role may not migrate"
    # What does not hold is told at once, and not looked at again.
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["values"] == [1]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert job["template"]["spec"]["restartPolicy"] == "Never", "a policy on exit codes takes it"


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
