"""Runs what the manifests say, without a cluster: every container of charge-once with its own arguments,
variables, volumes and user, on a root that can't be written to, until its probes succeed and it has charged.

    rehearse.py FOLDER PROGRAM POSTGRES ROLES SANDBOX PRODUCTION

FOLDER is empty and every user can enter it, PROGRAM is charge-once, POSTGRES the folder of PostgreSQL's programs,
ROLES deploy/postgres/roles.sql, and the others are what kustomize prints. It needs root, in namespaces of its own
for processes, mounts and network (scripts/deploy-check): ports and names are those of the manifests, and all that
was started ends with it.

PostgreSQL runs from POSTGRES in place of an image. What Kubernetes itself does is not tried: scheduling,
storage, policies of the network, the Ingress.
"""

import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import uuid

import yaml

# A debug build on a busy machine.
LIMIT = 60
DATABASE_HOST = "postgres.example.internal"
CA = "/etc/charge-once/postgres-ca/ca.crt"


def main() -> None:
    folder, program, postgres, roles, sandbox, production = sys.argv[1:]
    folder = pathlib.Path(folder)
    loopback_up()
    image = make_image(program, folder / "image")
    in_sandbox(Cluster(sandbox, folder / "sandbox", image), postgres)
    print("deploy-check: the sandbox charges")
    in_production(Cluster(production, folder / "production", image), postgres, roles)
    print("deploy-check: production charges")


def in_sandbox(cluster: "Cluster", postgres: str) -> None:
    """A replica that waits for the PostgreSQL beside it, and has the console and the key of the secret."""
    key = "sk_test_rehearsal"
    cluster.secrets["charge-once"] = {
        "postgres-password": "secret", "dev-api-key": key,
        "database-url": "postgres://charge_once:secret@postgres/charge_once"}
    pod = cluster.pod("Deployment", "charge-once")
    [before] = pod["initContainers"]
    [container] = pod["containers"]
    waiting = cluster.start(pod, before)
    waiting.says("the database doesn't answer yet")

    [server] = cluster.pod("StatefulSet", "postgres")["containers"]
    variables = cluster.variables(server)
    assert variables["POSTGRES_DB"] == variables["POSTGRES_USER"], "the stand-in makes one database"
    with Postgres(postgres, cluster.folder / "postgres", variables["POSTGRES_USER"],
                  variables["POSTGRES_PASSWORD"]) as database:
        program, *arguments = server["readinessProbe"]["exec"]["command"]
        database.run(program, *arguments)
        waiting.ends_well()
        running = cluster.start(pod, container)
        cluster.probe(container, running)
        assert status_of(container, "GET", "/console") in (200, 302, 303)
        charges_once(container, key)
        charges_once(container, cluster.new_key(pod, container))
        running.stops(pod["terminationGracePeriodSeconds"])


def in_production(cluster: "Cluster", postgres: str, roles: str) -> None:
    """Replicas that wait for a Job, three roles, and a PostgreSQL with a certificate of a private authority."""
    certificates = make_certificates(cluster.folder)
    cluster.config_maps["charge-once-postgres-ca"] = {
        "ca.crt": (certificates / "ca.crt").read_text(encoding="ascii")}
    passwords = {f"CHARGE_ONCE_{role}_PASSWORD": role.lower() for role in ("MIGRATOR", "APP", "READER")}

    def url(role: str) -> str:
        return (f"postgres://charge_once_{role}:{role}@{DATABASE_HOST}/charge_once"
                f"?sslmode=verify-full&sslrootcert={CA}")

    cluster.secrets["charge-once"] = {
        "database-url": url("app"), "migrator-database-url": url("migrator"),
        "reader-database-url": url("reader")}
    pod = cluster.pod("Deployment", "charge-once")
    job = cluster.pod("Job", "charge-once-migrate")
    check = cluster.pod("CronJob", "charge-once-check")
    [before] = pod["initContainers"]
    [container] = pod["containers"]
    with Postgres(postgres, cluster.folder / "postgres", "charge_once", "owner", certificates) as database:
        apply = ("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={roles}", "charge_once")
        database.run(*apply, environment=passwords)
        refuses_another_server(cluster, pod, before)
        waiting = cluster.start(pod, before)
        waiting.says("waiting for what is not ok: schema")
        cluster.start(job, job["containers"][0]).ends_well()
        waiting.ends_well()
        for line in ("ok       tls: TLSv1.3\n", "ok       rights: to rows only\n"):
            assert line in waiting.told(), waiting.told()
        database.run(*apply)
        running = cluster.start(pod, container)
        cluster.probe(container, running)
        assert status_of(container, "GET", "/console") == 404
        charges_once(container, cluster.new_key(pod, container))
        assert status_of(container, "GET", "/metrics", port="metrics") == 200
        cluster.start(check, check["containers"][0]).ends_well()
        running.stops(pod["terminationGracePeriodSeconds"])


def refuses_another_server(cluster: "Cluster", pod: dict, container: dict) -> None:
    """A certificate of an authority that isn't named, and one for another host, are no server's."""
    secret = cluster.secrets["charge-once"]
    right = secret["database-url"]
    for wrong in (right.replace(f"&sslrootcert={CA}", ""), right.replace(DATABASE_HOST, "localhost")):
        assert wrong != right
        secret["database-url"] = wrong
        refused = cluster.start(pod, container)
        assert refused.process.wait(LIMIT) == 2, refused.told()
        assert "certificate" in refused.told(), refused.told()
    secret["database-url"] = right


class Cluster:
    """Documents, and what a person has put beside them."""

    def __init__(self, manifests: str, folder: pathlib.Path, image: pathlib.Path):
        with open(manifests, encoding="utf-8") as text:
            self.documents = {(one["kind"], one["metadata"]["name"]): one
                              for one in yaml.safe_load_all(text)}
        folder.mkdir()
        self.folder, self.image = folder, image
        self.secrets, self.config_maps = {}, {}
        self.started = 0

    def pod(self, kind: str, name: str) -> dict:
        spec = self.documents[kind, name]["spec"]
        if kind == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        return spec["template"]["spec"]

    def variables(self, container: dict) -> dict:
        found = {}
        for one in container["env"]:
            source = one.get("valueFrom", {}).get("secretKeyRef")
            found[one["name"]] = self.secrets[source["name"]][source["key"]] if source else one["value"]
        return found

    def root(self, pod: dict, container: dict) -> pathlib.Path:
        """The image, which can't be written to, and the volumes."""
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        root = self.folder / f"root-{self.started}"
        root.mkdir()
        volumes = {one["name"]: one for one in pod.get("volumes", [])}
        mounts = []
        for one in container.get("volumeMounts", []):
            source = volumes[one["name"]]["configMap"]
            content = self.config_maps.get(source["name"])
            assert content is not None or source["optional"]
            volume = self.folder / f"volume-{self.started}-{one['name']}"
            volume.mkdir()
            for name, text in (content or {}).items():
                (volume / name).write_text(text, encoding="ascii")
            # A kubelet makes the folder, too.
            (self.image / one["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
            mounts.append((volume, one["mountPath"].lstrip("/")))
        mount("--rbind", self.image, root)
        mount("-o", "remount,bind,ro", root)
        mount("-t", "proc", "proc", root / "proc")
        for volume, path in mounts:
            mount("--bind", volume, root / path)
            mount("-o", "remount,bind,ro", root / path)
        return root

    def start(self, pod: dict, container: dict, arguments=None) -> "Container":
        """Without a privilege, and with no variable but its own and the image's."""
        self.started += 1
        user = pod["securityContext"]
        command = [
            shutil.which("setpriv"), "--no-new-privs", shutil.which("chroot"),
            f"--userspec={user['runAsUser']}:{user['runAsGroup']}", "--groups=", self.root(pod, container),
            "/usr/local/bin/charge-once", *(arguments or container["args"])]
        # That of the Dockerfile.
        environment = {"PATH": "/usr/local/bin", "BIND_ADDRESS": "0.0.0.0:8080"}
        log = self.folder / f"log-{self.started}"
        return Container(command, environment | self.variables(container), log)

    def probe(self, container: dict, running: "Container") -> None:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            until = time.monotonic() + LIMIT
            asked = container[probe]["httpGet"]
            while status_of(container, "GET", asked["path"], asked["port"]) != 200:
                assert running.process.poll() is None, running.told()
                assert time.monotonic() < until, running.told()
                time.sleep(0.05)

    def new_key(self, pod: dict, container: dict) -> str:
        """As `kubectl exec` runs it, beside the server."""
        made = self.start(pod, container, ["api-key", "create", "--account", "shop"])
        made.ends_well()
        return re.search(r"sk_\w+", made.told())[0]


class Container:
    """A process that writes into a log."""

    def __init__(self, command: list, environment: dict, log: pathlib.Path):
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output)

    def told(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def says(self, text: str) -> None:
        until = time.monotonic() + LIMIT
        while text not in self.told():
            assert self.process.poll() is None and time.monotonic() < until, self.told()
            time.sleep(0.05)

    def ends_well(self) -> None:
        assert self.process.wait(LIMIT) == 0, self.told()

    def stops(self, within: int) -> None:
        """As Kubernetes stops it, after the pause of preStop."""
        self.process.terminate()
        assert self.process.wait(within) == 0, self.told()


class Postgres(contextlib.AbstractContextManager):
    """A server at 127.0.0.1:5432 whose owner has a password; with certificates, by TLS only."""

    def __init__(self, programs: str, folder: pathlib.Path, owner: str, password: str, certificates=None):
        self.programs, self.folder, self.owner, self.password = programs, folder, owner, password
        names = {one.pw_name for one in pwd.getpwall()}
        self.user = "postgres" if "postgres" in names else "nobody"
        folder.mkdir()
        shutil.chown(folder, self.user)
        (folder / "password").write_text(password, encoding="ascii")
        shutil.chown(folder / "password", self.user)
        data = folder / "data"
        self.run("initdb", "--pgdata", data, "--username", owner, "--pwfile", folder / "password",
                 "--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        if certificates:
            for name in ("server.crt", "server.key"):
                shutil.copy(certificates / name, data / name)
                shutil.chown(data / name, self.user)
                (data / name).chmod(0o600)
            options += " -c ssl=on"
            access = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
            (data / "pg_hba.conf").write_text(access, encoding="ascii")
        self.control = ("pg_ctl", "--pgdata", data, "--silent", "--wait")
        # As the image does, before it listens. The cluster is temporary, so this need not be synced.
        self.run("postgres", "--single", "-D", data, "-c", "fsync=off", "template1",
                 told=f'CREATE DATABASE "{owner}"\n')
        self.run(*self.control, "--log", data / "log", "--options", options, "start")

    def run(self, program: str, *arguments, environment=None, told="") -> None:
        """One of its programs, as its owner. The server's may not be root's."""
        user = {}
        if program in ("initdb", "pg_ctl", "postgres"):
            user = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ["PATH"], "PGHOST": str(self.folder), "PGUSER": self.owner,
                       "PGPASSWORD": self.password} | (environment or {})
        done = subprocess.run(
            [f"{self.programs}/{program}", *arguments], env=environment, cwd=self.folder,
            input=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False,
            text=True, **user)
        assert done.returncode == 0, f"{program}: {done.stdout}"

    def __exit__(self, *_) -> None:
        self.run(*self.control, "--mode=immediate", "stop")


def charges_once(container: dict, key: str) -> None:
    """The first charge, and a retry of it."""
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": f"first-charge-{uuid.uuid4()}",
               "Content-Type": "application/json"}
    body = json.dumps({"amount": 2000, "currency": "usd", "source": "tok_visa"})
    replies = []
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", port_of(container, "http"), timeout=LIMIT)
        connection.request("POST", "/charges", body, headers)
        reply = connection.getresponse()
        replies.append((reply.status, reply.read()))
        connection.close()
    assert replies[0][0] == 201 and replies[0] == replies[1], replies
    assert reply.headers["idempotent-replayed"] == "true"


def status_of(container: dict, method: str, path: str, port: str = "http") -> int:
    """0 where no connection is accepted."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(container, port), timeout=LIMIT)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except ConnectionRefusedError:
        return 0
    finally:
        connection.close()


def port_of(container: dict, name: str) -> int:
    [port] = [one["containerPort"] for one in container["ports"] if one["name"] == name]
    return port


def make_image(program: str, image: pathlib.Path) -> pathlib.Path:
    """What the Dockerfile puts into one: the program and the libraries that it was linked with."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for file in [program, *re.findall(r"/\S+", listed)]:
        to = "usr/local/bin/charge-once" if file == program else file.lstrip("/")
        (image / to).parent.mkdir(parents=True, exist_ok=True)
        # A copy of the program takes longer than all else here.
        (image / to).touch()
        mount("--bind", file, image / to)
    (image / "proc").mkdir()
    (image / "etc").mkdir()
    # What a kubelet writes, in place of the cluster's DNS.
    hosts = f"127.0.0.1 localhost postgres {DATABASE_HOST}\n"
    (image / "etc/hosts").write_text(hosts, encoding="ascii")
    (image / "etc/nsswitch.conf").write_text("hosts: files\n", encoding="ascii")
    return image


def make_certificates(folder: pathlib.Path) -> pathlib.Path:
    """A private authority, and a certificate of it for the database's name."""
    def openssl(*arguments) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl(*new, "-subj", "/CN=A private authority", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(*new, "-subj", f"/CN={DATABASE_HOST}", "-addext", f"subjectAltName=DNS:{DATABASE_HOST}",
            "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-keyout", "server.key", "-out", "server.crt")
    return folder


def mount(*arguments) -> None:
    subprocess.run(["mount", *arguments], check=True)


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        # SIOCSIFFLAGS with IFF_UP and IFF_RUNNING.
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x41))


if __name__ == "__main__":
    main()
