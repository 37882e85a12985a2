"""The files of `daemon/deploy`: what they name is there, and is called so. What they make of it is tested by `make deploy`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.support.daemon.deploying import DEPLOY, EXAMPLES, HELM, ROOT, VALUES, load, merged

from confide_daemon import __version__
from confide_daemon.config import DEFAULT_PORT, DaemonConfig
from confide_daemon.datadir.credentials import MASTER

CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SCHEMA = yaml.safe_load((HELM / "values.schema.json").read_text())
TEMPLATES = sorted((HELM / "templates").iterdir())
NODE_PORT = 7734
PASSWORD = "store-password"


def test_the_image_takes_from_the_clone_what_there_is() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    named = [each for line in sources for each in line.split()]
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    assert set(packages) <= set(named)
    assert all((ROOT / each).exists() for each in named)
    (extras,) = re.findall(r"--no-index .*'confide\[([\w,]+)\]'", CONTAINERFILE)
    assert (ROOT / "locks" / f"confided-{extras.removeprefix('daemon,')}.txt").exists()


def test_the_image_is_nobodys_who_could_do_more() -> None:
    """Its user is a number, so that Kubernetes sees that it is not root; its port is the one that machines expect."""
    last = CONTAINERFILE.rpartition("\nFROM ")[2]
    assert f"USER {DEFAULT_PORT}:{DEFAULT_PORT}" in last
    assert f"EXPOSE {DEFAULT_PORT} {NODE_PORT}" in last
    assert f'"0.0.0.0:{DEFAULT_PORT}"' in last
    assert "ORT_DISABLE_TELEMETRY=1" in last
    assert CONTAINERFILE.count("\nFROM ${BASE}") == 2


def test_no_file_names_where_packages_or_images_come_from() -> None:
    """Nor a password: an address of a registry is somebody's, and a short name is whose the reader wishes."""
    images = [service["image"] for service in COMPOSE["services"].values()]
    images += re.findall(r"^ARG BASE=(.+)$", CONTAINERFILE, re.MULTILINE)
    images += [values["image"]["repository"] for values in (VALUES,)]
    assert images
    assert not [image for image in images if "." in image.split("/")[0].split(":")[0]]


@pytest.mark.addons
@pytest.mark.parametrize("name", ["node-1", "node-2"])
def test_a_node_of_the_compose_file_reads_its_configuration(name: str, tmp_path: Path) -> None:
    """Its address is the name by which the other one reaches it."""
    service = COMPOSE["services"][name]
    ((given, target),) = [(each["source"], each["target"]) for each in service["configs"]]
    assert target == "/etc/confide/daemon.toml"
    text = (DEPLOY / COMPOSE["configs"][given]["file"]).read_text()
    node = tomllib.loads(text)["node"]
    assert node == {"listen": f"0.0.0.0:{NODE_PORT}", "address": f"{name}:{NODE_PORT}"}
    from confide_cluster.settings import StoreConfig

    assert load(tmp_path, text).table(StoreConfig).url.split("@")[1].split("/")[0] in COMPOSE["services"]
    assert service["read_only"]
    assert service["volumes"][0].endswith(":/var/lib/confide")


def test_secrets_are_called_as_the_daemon_looks_for_them() -> None:
    assert set(COMPOSE["secrets"]) == {MASTER, PASSWORD}
    assert PASSWORD in (ROOT / "configs" / "daemon.toml").read_text()
    for place in (each["file"] for each in COMPOSE["secrets"].values()):
        assert f"daemon/deploy/{Path(place).parent}/" in (ROOT / ".gitignore").read_text().splitlines()
    assert MASTER in (HELM / "values.yaml").read_text()


def test_lines_of_the_page_name_services_that_there_are() -> None:
    """No docker engine has run them (docs/deploying.md); so much of them is known."""
    page = (ROOT / "docs" / "deploying.md").read_text()
    named = re.findall(r"^\$ docker compose (?:run --rm|exec) (\S+) ", page, re.MULTILINE)
    assert named
    assert set(named) <= set(COMPOSE["services"])


def test_the_balancer_leads_to_the_nodes_of_the_compose_file() -> None:
    """At the port that the machines know, and its patience is longer than that of a session that is silent."""
    text = (DEPLOY / "haproxy.cfg").read_text()
    nodes = {name for name in COMPOSE["services"] if name.startswith("node-")}
    assert set(re.findall(r"^    server (\S+) \1:7733$", text, re.MULTILINE)) == nodes
    assert COMPOSE["services"]["haproxy"]["ports"] == [f"{DEFAULT_PORT}:{DEFAULT_PORT}"]
    assert f"maxconn {len(nodes) * DaemonConfig().server.max_sessions}" in text
    patience = {int(each) for each in re.findall(r"timeout (?:client|server) (\d+)s", text)}
    assert min(patience) > 3.6 * DaemonConfig().server.keepalive_s


@pytest.mark.parametrize("given", EXAMPLES, ids=lambda path: path.stem)
def test_values_of_the_examples_are_taken(given: Path) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(merged(given), SCHEMA)


def test_values_alone_are_not_enough() -> None:
    """Where the store is, and which Secret is meant, nobody can guess."""
    wrong = {error.path[0] for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(VALUES)}
    assert wrong == {"store", "secret"}


REFUSED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a password in the address": lambda values: values["store"].update(
        url="postgresql://confide:opensesame@db/confide"
    ),
    "a password behind it": lambda values: values["store"].update(
        url="postgresql://confide@db/confide?password=opensesame"
    ),
    "a line that ends the string": lambda values: values["store"].update(url='postgresql://confide@db/"\nconfide'),
    "an option that nobody has": lambda values: values.update(replica=3),
    "no node": lambda values: values.update(replicas=0),
    "a section that the chart writes": lambda values: values.update(daemonToml="[store]\nurl = 'x'\n"),
    "vectors of no model": lambda values: values["embedding"].update(enabled=True, image="x"),
    "a secret in place of its name": lambda values: values.update(secret="OPEN SESAME"),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_values_that_cannot_be_are_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    """Before anything is made of them: what is in a release can be read."""
    values = merged(HELM / "examples" / "two-nodes.yaml")
    jsonschema.validate(values, SCHEMA)
    change(values)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


def test_templates_use_values_that_there_are() -> None:
    """And each value is used."""
    text = "".join(path.read_text() for path in TEMPLATES)
    used = set(re.findall(r"\.Values\.([\w.]+)", text))
    there = set()
    for key, value in VALUES.items():
        is_free = not isinstance(value, dict) or key in ("resources", "podAnnotations", "nodeSelector", "affinity")
        there |= {key} if is_free else {f"{key}.{name}" for name in value}
    assert used == there
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((HELM / "Chart.yaml").read_text())
    assert __version__.startswith(chart["appVersion"])
    assert re.search(rf"^runAsUser: {DEFAULT_PORT}$", (HELM / "templates" / "_names.tpl").read_text(), re.MULTILINE)
