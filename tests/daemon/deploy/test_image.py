"""The image of `daemon/deploy/Containerfile`: built, confined as the chart does it, used by a machine. `make deploy` runs this."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.daemon.containers import Containers
from tests.support.deadline import DEADLINE_S
from tests.support.network.reverse_proxies import free_port
from tests.support.programs.processes import Machine, wait_until

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


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=DEADLINE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
