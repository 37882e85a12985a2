"""What the chart is rendered to, and the compose file, by the tools of their makers. `make deploy` brings these and runs this."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from tests.support.daemon.deploying import DEPLOY, EXAMPLES, HELM, ROOT, load, only, rendered, run, tool

from confide_daemon.config import DEFAULT_PORT

NEWEST, OLDEST = "1.34", "1.27"
RELEASE = "memory"


@pytest.mark.parametrize("given", EXAMPLES, ids=lambda path: path.stem)
def test_helm_finds_nothing_to_say(given: Path) -> None:
    said = run(tool("helm"), "lint", "--strict", str(HELM), "--values", str(given))
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("given", EXAMPLES, ids=lambda path: path.stem)
def test_objects_are_what_kubernetes_knows(given: Path, version: str, tmp_path: Path) -> None:
    """By its own schemas, where a field that there is not is a mistake."""
    objects = tmp_path / "objects.yaml"
    text = yaml.safe_dump_all(rendered(given))
    command = [tool("kubernetes-validate"), "--strict", "--kubernetes-version", version, str(objects)]
    objects.write_text(text)
    run(*command)
    objects.write_text(text.replace("maxSurge:", "maxSurges:"))
    assert "maxSurges" in run(*command, code=1)


@pytest.mark.parametrize("given", EXAMPLES, ids=lambda path: path.stem)
def test_nodes_read_their_configuration_and_are_found(given: Path, tmp_path: Path) -> None:
    """What stands in several objects is the same in all: names, labels, ports."""
    objects = rendered(given)
    text = only(objects, "ConfigMap")["data"]["daemon.toml"]
    loaded = load(tmp_path, text.replace("@ADDRESS@", "192.0.2.1"))
    values = yaml.safe_load(given.read_text())
    assert loaded.store.url == values["store"]["url"]
    assert loaded.metrics.listen == ("192.0.2.1:9733" if "metrics" in values else "")
    assert loaded.embedding.provider == ("compatible" if "embedding" in values else "local")

    deployment = only(objects, "Deployment")["spec"]
    pod = deployment["template"]
    labels = pod["metadata"]["labels"].items()
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    (container,) = pod["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert (ports["machines"], ports["nodes"]) == (DEFAULT_PORT, 7734)
    services = [
        each for each in objects if each["kind"] == "Service" and not each["metadata"]["name"].endswith("embedding")
    ]
    for selector in (
        deployment["selector"]["matchLabels"],
        only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in services),
    ):
        assert selector.items() <= labels
    assert {each["spec"]["ports"][0]["targetPort"] for each in services} <= set(ports)

    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    for each in (container, *pod["spec"]["initContainers"]):
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
        assert each["securityContext"]["readOnlyRootFilesystem"]
    # Nobody but a node reaches the nodes' port, and nobody else asks a node's address.
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    assert bool(policies) == (values.get("networkPolicy", {}).get("enabled", True))
    for policy in policies:
        for rule in policy["spec"].get("ingress", ()):
            if {"port": "nodes", "protocol": "TCP"} in rule["ports"]:
                (peer,) = rule["from"]
                assert peer["podSelector"]["matchLabels"].items() <= labels


def test_no_secret_is_made_and_a_wrong_value_is_refused() -> None:
    assert not [each for given in EXAMPLES for each in rendered(given) if each["kind"] == "Secret"]
    command = [tool("helm"), "template", RELEASE, str(HELM), "--values", str(HELM / "examples" / "two-nodes.yaml")]
    assert "store" in run(*command, "--set", "store.url=postgresql://confide:opensesame@db/confide", code=1)
    assert "replicas" in run(*command, "--set", "replicas=0", code=1)
    assert "secret" in run(tool("helm"), "template", RELEASE, str(HELM), code=1)


def test_the_compose_file_is_one(tmp_path: Path) -> None:
    """By the schema of the Compose Specification."""
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    run(*command, str(DEPLOY / "compose.yaml"))
    slip = tmp_path / "compose.yaml"
    slip.write_text((DEPLOY / "compose.yaml").read_text().replace("read_only:", "readonly:"))
    assert "readonly" in run(*command, str(slip), code=1)


PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")


def line(start: str) -> list[str]:
    """The one line of the page that begins so, as words."""
    (found,) = re.findall(rf"^\$ ({re.escape(start)} .*)$", PAGE, re.MULTILINE)
    return shlex.split(found)


def test_the_page_s_kubectl_makes_the_secret_that_the_daemon_reads(tmp_path: Path) -> None:
    """As far as it goes without a cluster."""
    for name in ("confide-master-key", "store-password"):
        (tmp_path / name).write_text("of the reader's own")
    _, *words = line("kubectl create secret")
    files = [
        f"--from-file={tmp_path}/{word.removeprefix('--from-file=')}" if "--from-file" in word else word
        for word in words
    ]
    made = yaml.safe_load(run(tool("kubectl"), *files, "--dry-run=client", "--output", "yaml"))
    assert (made["kind"], made["metadata"]["name"]) == ("Secret", "confide")
    assert set(made["data"]) == {"confide-master-key", "store-password"}


def test_the_page_s_helm_makes_what_its_kubectl_asks(tmp_path: Path) -> None:
    """The release is rendered and not installed: there is no cluster here."""
    _, install, name, chart, *more = line("helm install")
    assert install == "install"
    objects = [
        each for each in yaml.safe_load_all(run(tool("helm"), "template", name, str(ROOT / chart), *more)) if each
    ]
    _, _, wanted, *_ = line("kubectl exec")
    assert only(objects, "Deployment", wanted.removeprefix("deploy/"))
