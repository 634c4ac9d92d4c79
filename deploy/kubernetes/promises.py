"""What a schema can't say of the manifests: that they are safe, and that they fit the program and its page.

    promises.py FOLDER VARIABLES DOCUMENT

FOLDER has what kustomize prints of each overlay, VARIABLES is what `charge-once config-table` prints, and
DOCUMENT is docs/deployment.md.
"""

import pathlib
import re
import sys

import yaml

CONFINED = {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True}
CA = "/etc/charge-once/postgres-ca"


def main() -> None:
    folder, table, document = (pathlib.Path(path) for path in sys.argv[1:])
    variables = set(re.findall(r"^\| `([A-Z_]+)`", table.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(variables) > 20, variables
    # One command makes the secret of the sandbox, another the one of production.
    made = [set(re.findall(r"--from-literal=([a-z-]+)=", block))
            for block in re.findall(r"^kubectl [^\n]*create secret generic charge-once (.*?[^\\])$",
                                    document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)]
    assert len(made) == 2, made
    assert f"sslrootcert={CA}/ca.crt" in document.read_text(encoding="utf-8")

    overlays = {name: documents_of(folder / f"{name}.yaml") for name in ("base", "sandbox", "production")}
    for documents in overlays.values():
        serves(documents)
        for (kind, _), document in documents.items():
            for pod in pods(kind, document):
                safe(pod, variables)
    base(overlays["base"])
    sandbox(overlays["sandbox"], made[0])
    production(overlays["production"], made[1])


def documents_of(path: pathlib.Path) -> dict:
    with open(path, encoding="utf-8") as manifests:
        return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(manifests)}


def pods(kind: str, document: dict) -> list:
    """The pod that a document makes, if it makes one."""
    if kind in ("Deployment", "StatefulSet", "Job"):
        return [document["spec"]["template"]["spec"]]
    if kind == "CronJob":
        return [document["spec"]["jobTemplate"]["spec"]["template"]["spec"]]
    return []


def containers(pod: dict) -> list:
    return pod.get("initContainers", []) + pod["containers"]


def serves(documents: dict) -> None:
    """What every overlay has of the replicas and their service."""
    spec = documents["Deployment", "charge-once"]["spec"]
    template = spec["template"]
    labels = template["metadata"]["labels"]
    [container] = template["spec"]["containers"]
    assert container["args"] == ["serve"]
    service = documents["Service", "charge-once"]["spec"]
    # What selects the replicas must not select other pods.
    for selector in (spec["selector"]["matchLabels"], service["selector"]):
        assert selector.items() <= labels.items(), selector
        for (kind, name), document in documents.items():
            for one in templates(kind, document):
                is_own = (kind, name) == ("Deployment", "charge-once")
                selects = selector.items() <= one["metadata"]["labels"].items()
                assert selects == is_own, (kind, name)

    probes = {probe: container[probe]["httpGet"]["path"]
              for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/livez", "livenessProbe": "/livez",
                      "readinessProbe": "/readyz"}
    port, metrics = container["ports"]
    environment = environment_of(container)
    assert environment["BIND_ADDRESS"].endswith(f":{port['containerPort']}")
    assert environment["METRICS_ADDRESS"].endswith(f":{metrics['containerPort']}")
    assert [one["targetPort"] for one in service["ports"]] == [port["name"]]
    assert environment["MIGRATE_ON_START"] == "false", "that is done before the server starts"
    # No command: the image has none but charge-once.
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = int(environment["DRAIN_TIMEOUT"].removesuffix("s"))
    assert template["spec"]["terminationGracePeriodSeconds"] > pause + drain


def base(documents: dict) -> None:
    """One role: its URL is all that a secret must have."""
    assert secrets(documents) == {"database-url"}
    replica = documents["Deployment", "charge-once"]["spec"]
    assert replica["replicas"] >= 2
    assert before(replica) == ["migrate", "--wait", "10m"]


def sandbox(documents: dict, made: set) -> None:
    assert secrets(documents) == made
    replica = documents["Deployment", "charge-once"]["spec"]
    # A session of the console lives in one process.
    assert replica["replicas"] == 1
    assert before(replica) == ["migrate", "--wait", "10m"]
    environment = environment_of(replica["template"]["spec"]["containers"][0])
    assert environment["CONSOLE"] == environment["FAULTS"] == environment["EMPTY_LISTS"] == "true"
    assert environment["KEYS"] == "/v1=assign"
    server = documents["StatefulSet", "postgres"]["spec"]["template"]
    service = documents["Service", "postgres"]["spec"]
    assert service["selector"].items() <= server["metadata"]["labels"].items()
    assert [one["port"] for one in service["ports"]] == [5432]


def production(documents: dict, made: set) -> None:
    assert secrets(documents) == made
    replica = documents["Deployment", "charge-once"]
    job = documents["Job", "charge-once-migrate"]["spec"]["template"]["spec"]
    daily = documents["CronJob", "charge-once-check"]["spec"]
    [migrate] = job["containers"]
    assert migrate["args"] == ["migrate", "--wait", "10m"]
    assert before(replica["spec"]) == ["check", "--server", "--wait", "10m"], "its role may not migrate"
    # One role each: what reads can't write, and what writes can't migrate.
    keys = [database_of(containers(pod)) for kind, name in (
        ("Deployment", "charge-once"), ("Job", "charge-once-migrate"), ("CronJob", "charge-once-check"))
            for pod in pods(kind, documents[kind, name])]
    assert keys == [{"database-url"}, {"migrator-database-url"}, {"reader-database-url"}], keys
    runs_once_a_day(daily)

    labels = replica["spec"]["template"]["metadata"]["labels"]
    budget = documents["PodDisruptionBudget", "charge-once"]["spec"]
    assert budget["selector"]["matchLabels"] == replica["spec"]["selector"]["matchLabels"]
    assert budget["minAvailable"] < replica["spec"]["replicas"]

    # Browsers and the program call it by one name, and the way there has TLS.
    [container] = replica["spec"]["template"]["spec"]["containers"]
    ingress = documents["Ingress", "charge-once"]["spec"]
    [rule] = ingress["rules"]
    assert environment_of(container)["PUBLIC_URL"] == f"https://{rule['host']}"
    assert [one["hosts"] for one in ingress["tls"]] == [[rule["host"]]]
    [path] = rule["http"]["paths"]
    names = [one["name"] for one in documents["Service", "charge-once"]["spec"]["ports"]]
    assert path["backend"]["service"] == {"name": "charge-once", "port": {"name": names[0]}}
    environment = environment_of(container)
    assert not {"CONSOLE", "FAULTS", "KEYS", "EMPTY_LISTS", "DEV_API_KEY", "ANY_TEST_KEY"} & environment.keys()

    closed = documents["NetworkPolicy", "nothing-else"]["spec"]
    assert closed == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    open_to = documents["NetworkPolicy", "replicas"]["spec"]
    assert open_to["podSelector"]["matchLabels"].items() <= labels.items()
    ports = {one["name"] for one in container["ports"]}
    entered = [(bool(one.get("from")), one["ports"][0]["port"]) for one in open_to["ingress"]]
    assert {port for _, port in entered} == ports and all(named for named, _ in entered), entered
    database = documents["NetworkPolicy", "to-the-database"]["spec"]["podSelector"]["matchLabels"]
    for kind, document in ((kind, document) for (kind, _), document in documents.items()):
        for template in templates(kind, document):
            assert database.items() <= template["metadata"]["labels"].items(), kind

    # No schema of the operator is at hand, so its few fields are checked here.
    monitor = documents["ServiceMonitor", "charge-once"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    service = documents["Service", "charge-once-metrics"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert set(monitor["spec"]) == {"endpoints", "jobLabel", "selector"}
    assert set(endpoint) == {"interval", "port", "scrapeTimeout"}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]].startswith("charge-once")
    [port] = service["spec"]["ports"]
    assert port["name"] == endpoint["port"] and port["targetPort"] in ports
    assert service["spec"]["selector"].items() <= labels.items()


def templates(kind: str, document: dict) -> list:
    spec = document.get("spec", {})
    if kind == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return [spec["template"]] if "template" in spec else []


def before(replica: dict) -> list:
    """What runs before a server does."""
    [container] = replica["template"]["spec"]["initContainers"]
    return container["args"]


def environment_of(container: dict) -> dict:
    return {one["name"]: one.get("value") for one in container["env"]}


def database_of(of_a_pod: list) -> set:
    """The keys of the secret that have the URL of the database."""
    return {one["valueFrom"]["secretKeyRef"]["key"]
            for container in of_a_pod for one in container["env"] if one["name"] == "DATABASE_URL"}


def secrets(documents: dict) -> set:
    """The keys that the secret must have."""
    sources = [one.get("valueFrom", {}).get("secretKeyRef")
               for (kind, _), document in documents.items()
               for pod in pods(kind, document) for container in containers(pod) for one in container["env"]]
    assert {one["name"] for one in sources if one} == {"charge-once"}
    return {one["key"] for one in sources if one}


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
    assert environment_of(container)["MIGRATE_ON_START"] == "false", "its role may not migrate"
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
    for container in containers(pod):
        assert container["securityContext"] == CONFINED
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert not container["image"].endswith(":latest") and ":" in container["image"]
        for one in container["env"]:
            is_secret = one["name"].endswith(("URL", "KEY", "PASSWORD")) and one["name"] != "PUBLIC_URL"
            assert is_secret == ("valueFrom" in one), one
        if container["image"].startswith("postgres:"):
            continue
        names = {one["name"] for one in container["env"]}
        assert "DATABASE_URL" in names
        assert names <= variables, f"no such variables: {names - variables}"
        # A URL may name the certificate of a private authority.
        [mounted] = container["volumeMounts"]
        [volume] = [one for one in pod["volumes"] if one["name"] == mounted["name"]]
        assert mounted["mountPath"] == CA and mounted["readOnly"] is True
        assert volume["configMap"]["optional"] is True, "a public one needs none"


if __name__ == "__main__":
    main()
