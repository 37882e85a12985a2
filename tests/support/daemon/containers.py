"""Images that are built and run here: buildah and podman with a storage of their own, as root, on a base that Debian's packages make."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.support.deadline import DEADLINE_S

PROGRAMS: Final = ("buildah", "podman", "runc", "mmdebstrap")
BUILD_S: Final = 1200
RUN_S: Final = 60
CERTIFICATES: Final = Path("/etc/ssl/certs")


class Containers:
    """Images and containers in a folder, all of which end with it."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("images are built here as root alone")
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            pytest.skip(f"not installed: {', '.join(missing)} (Debian's packages of that name)")
        self._folder = folder
        self._storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._command = ["podman", *self._storage, "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
        self._command += ["--events-backend", "file"]
        self._ids: list[str] = []

    def base(self) -> str:
        """An image with what the daemon needs of a system, and no more: Debian's Python, from this machine's own sources."""
        archive = self._folder / "base.tar"
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,ca-certificates"]
        command += [release["VERSION_CODENAME"], str(archive), *(str(each) for each in sources if each.is_file())]
        self._run(command, BUILD_S)
        self.podman("import", "--quiet", str(archive), "base", timeout_s=BUILD_S)
        archive.unlink()
        return "localhost/base"

    def build(self, root: Path, containerfile: Path, *, base: str, settings_of_pip: Path) -> str:
        """The image of a clone, without a container's isolation: a build that nobody has written but us needs none."""
        command = [
            "buildah",
            *self._storage,
            "build",
            "--isolation",
            "chroot",
            "--quiet",
            "--build-arg",
            f"BASE={base}",
        ]
        command += ["--secret", f"id=pip,src={settings_of_pip}", "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        self._run([*command, "--file", str(containerfile), "--tag", "confided", str(root)], BUILD_S)
        return "localhost/confided"

    def start(self, image: str, *arguments: str, options: list[str]) -> str:
        """A container that goes on; its id."""
        started = self.podman("run", "--detach", *_CONFINED, *options, image, *arguments).strip()
        self._ids.append(started)
        return started

    def run(self, image: str, *arguments: str, options: list[str]) -> str:
        """What a container prints that ends by itself, and is removed."""
        return self.podman("run", "--rm", *_CONFINED, *options, image, *arguments)

    def inspect(self, image: str) -> dict[str, object]:
        """The configuration of an image."""
        (found,) = json.loads(self.podman("image", "inspect", image))
        config: dict[str, object] = found["Config"]
        return config

    def log(self, container: str) -> str:
        """All that a container has said; a daemon does on stderr."""
        done = subprocess.run([*self._command, "logs", container], capture_output=True, text=True, timeout=RUN_S)
        return done.stdout + done.stderr

    def podman(self, *arguments: str, timeout_s: float = RUN_S) -> str:
        """What podman prints; it must succeed."""
        return self._run([*self._command, *arguments], timeout_s)

    def close(self) -> None:
        """End all containers, and give back what is mounted."""
        for container in self._ids:
            self.podman("rm", "--force", "--time", "0", container)
        self.podman("system", "reset", "--force", timeout_s=DEADLINE_S * 4)

    def _run(self, command: list[str], timeout_s: float) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (
            f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
        return done.stdout


_CONFINED: Final = [
    # As in Kubernetes with the chart: nothing can be written but what is mounted, and there is nothing to be allowed.
    *("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges"),
    # Podman's own limits are higher than what a root without CAP_SYS_RESOURCE may set, as where this was written.
    *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"),
    # Loopback is what this machine has of a network.
    *("--network", "host"),
]
