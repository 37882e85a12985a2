"""The image of `daemon/deploy/Containerfile`: built, confined as the chart does it, used by a machine. `make deploy` runs this."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.containers import Containers
from tests.support.daemon.deploying import only, rendered
from tests.support.daemon.postgres import server
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.processes import Machine, wait_until

from confide_daemon.config import DEFAULT_PORT as PORT
from confide_daemon.datadir.credentials import MASTER

ROOT = Path(__file__).parents[3]
USER = 7733
STOPS_S = 60
SETTINGS = Path(os.environ.get("PIP_CONFIG_FILE", "/etc/pip.conf"))

pytestmark = pytest.mark.skipif(
    "CONFIDE_DEPLOY" not in os.environ, reason="make deploy builds the image, which takes minutes"
)


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    # On a disk: layers are larger than what there may be of memory.
    with tempfile.TemporaryDirectory(prefix="confide-containers-", dir="/var/tmp") as folder:
        found = Containers(Path(folder))
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="module")
def image(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = tmp_path_factory.mktemp("pip") / "pip.conf"
    settings.write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")
    return containers.build(
        ROOT, ROOT / "daemon/deploy/Containerfile", base=containers.base(), settings_of_pip=settings
    )


def test_it_serves_a_machine_and_ends_when_it_is_told_to(containers: Containers, image: str, tmp_path: Path) -> None:
    """init, serve, join, store, search, SIGTERM; then again on what it has left, by its own exit code."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, USER, USER)
    tmp_path.chmod(0o755)
    (tmp_path / "daemon.toml").write_text('[at_rest]\ncustody = "server"\n')
    options = [
        "--volume",
        f"{data}:/var/lib/confide",
        "--volume",
        f"{tmp_path}/daemon.toml:/etc/confide/daemon.toml:ro",
    ]
    assert "confided" in containers.run(image, "--version", options=[])
    containers.run(image, "init", options=options)
    assert {path.stat().st_uid for path in data.rglob("*")} == {USER}

    port = free_port()
    serve = ["serve", "--listen", f"127.0.0.1:{port}", "--log-format", "json"]
    first = containers.start(image, *serve, options=options)
    wait_until("the daemon to serve", lambda: is_healthy(port))
    url = f"confide://127.0.0.1:{port}"
    made = containers.podman("exec", first, "confided", "invite", "laptop", "--no-wait", "--json", "--url", url)
    machine = Machine(tmp_path, "laptop")
    machine.run("join", json.loads(made)["invite"])
    machine.run("store", "Herons nest in the yard.")
    assert "Herons" in machine.run("search", "where do herons nest")
    # The packaged model is in the image, and computes there.
    assert re.search("^ok +embedding model", containers.podman("exec", first, "confided", "doctor"), re.MULTILINE)

    began = time.monotonic()
    containers.podman("kill", "--signal", "TERM", first)
    assert containers.podman("wait", first, timeout_s=STOPS_S).strip() == "0"
    assert time.monotonic() - began < STOPS_S
    log = containers.log(first)
    assert "confided ended" in log
    assert "Herons" not in log

    containers.start(image, *serve, options=options)
    wait_until("the daemon to serve again", lambda: is_healthy(port))
    assert "Herons" in machine.run("search", "herons")


def test_it_is_what_its_file_says(containers: Containers, image: str) -> None:
    """No root, no pip, no compiler, nothing that speaks to its maker."""
    config = containers.inspect(image)
    assert config["User"] == f"{USER}:{USER}"
    assert "ORT_DISABLE_TELEMETRY=1" in config["Env"]  # type: ignore[operator]
    names = containers.run(
        image, "-c", "ls /opt; ls /opt/confide/bin; id -u", options=["--entrypoint", "/bin/sh"]
    ).split()
    assert names[-1] == str(USER)
    assert {"confide", "confided"} <= set(names)
    assert not {"pip", "wheels", "src"} & set(names)


def test_pods_of_the_chart_are_nodes(containers: Containers, image: str, tmp_path: Path) -> None:
    """The job, the pods' first containers and the nodes, with the mounts, modes and probes that the chart gives them, on two addresses."""
    with server() as postgres:
        values = tmp_path / "values.yaml"
        values.write_text(f"store: {{url: {postgres.database()}}}\nsecret: confide\n")
        objects = rendered(values)
        pods = [Pod(tmp_path, number, objects, containers, image) for number in range(2)]
        pods[0].run_job(only(objects, "Job", "memory-confide-init"))
        for pod in pods:
            pod.start()
        first, second = pods
        laptop, desktop = Machine(tmp_path, "laptop"), Machine(tmp_path, "desktop")
        laptop.run("join", first.invite("laptop"))
        laptop.run("store", "Herons nest in the yard.")
        # Another machine of that space, at the other node.
        desktop.run("join", second.invite("desktop", "--space", "laptop"))
        assert "Herons" in desktop.run("search", "where do herons nest")
        for pod in pods:
            pod.look()
        first.stop()
        wait_until("the other node to have it", lambda: "Herons" in desktop.run("search", "herons"))
        second.look()


class Pod:
    """As Kubernetes makes one; what it has mounted are folders of this machine, and its address is on loopback."""

    def __init__(
        self, root: Path, number: int, objects: list[dict[str, Any]], containers: Containers, image: str
    ) -> None:
        self.address = f"127.0.0.{number + 2}"
        self._spec = only(objects, "Deployment")["spec"]["template"]["spec"]
        self._containers = containers
        self._image = image
        self._root = root / f"pod{number}"
        self._id = ""
        root.chmod(0o755)
        self._root.mkdir()
        for name in ("config", "copies", "temporary"):  # empty ones, whose group is the pod's
            self._make(self._root / name, 0o2777)
        self._make(self._root / "given", 0o755)
        (self._root / "given" / "daemon.toml").write_text(only(objects, "ConfigMap")["data"]["daemon.toml"])
        secrets = root / "secrets"
        if not secrets.exists():
            self._make(secrets, 0o750)
            (secrets / MASTER).write_bytes(os.urandom(32))
            os.chown(secrets / MASTER, 0, USER)
            (secrets / MASTER).chmod(0o440)
        (self._root / "secrets").symlink_to(secrets)

    @staticmethod
    def _make(folder: Path, mode: int) -> None:
        folder.mkdir()
        os.chown(folder, 0, USER)
        folder.chmod(mode)

    def _options(self, container: dict[str, Any]) -> list[str]:
        options = []
        for each in container.get("env", ()):
            options += ["--env", f"{each['name']}={each.get('value', self.address)}"]
        for each in container["volumeMounts"]:
            place = (self._root / each["name"]).resolve()
            options += ["--volume", f"{place}:{each['mountPath']}{':ro' if each.get('readOnly') else ''}"]
        if "command" in container:
            options += ["--entrypoint", json.dumps(container["command"])]
        return options

    def run_job(self, job: dict[str, Any]) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        self._containers.run(self._image, *container["args"], options=self._options(container))
        shutil.rmtree(self._root / "copies")
        self._make(self._root / "copies", 0o2777)

    def start(self) -> None:
        (config,) = self._spec["initContainers"]
        self._containers.run(self._image, *config["args"], options=self._options(config))
        (container,) = self._spec["containers"]
        serve = ["serve", "--listen", f"{self.address}:{PORT}", "--log-format", "json"]
        self._id = self._containers.start(self._image, *serve, options=self._options(container))
        path = container["readinessProbe"]["httpGet"]["path"]
        wait_until("the node to be ready", lambda: answers(f"http://{self.address}:{PORT}{path}"))

    def invite(self, name: str, *options: str) -> str:
        url = f"confide://{self.address}:{PORT}"
        made = self._containers.podman(
            "exec", self._id, "confided", "invite", name, "--no-wait", "--json", "--url", url, *options
        )
        return str(json.loads(made)["invite"])

    def look(self) -> None:
        """As the probe of its life does."""
        (container,) = self._spec["containers"]
        command = [each.replace("127.0.0.1", self.address) for each in container["livenessProbe"]["exec"]["command"]]
        self._containers.podman("exec", self._id, *command)

    def stop(self) -> None:
        self._containers.podman("kill", "--signal", "TERM", self._id)
        assert self._containers.podman("wait", self._id, timeout_s=STOPS_S).strip() == "0"


def is_healthy(port: int) -> bool:
    return answers(f"http://127.0.0.1:{port}/health")


def answers(url: str) -> bool:
    """Whether it says 200."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
