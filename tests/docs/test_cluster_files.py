"""The files that docs/cluster.md hands out: each is parsed by what would read it, as far as that is here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
SLURM, KUBERAY = ROOT / "examples/cluster/slurm.sh", ROOT / "examples/cluster/kuberay.yaml"
IMAGES = sorted((ROOT / "docker").glob("*.Dockerfile"))
INSTRUCTIONS = {"FROM", "ARG", "ENV", "RUN", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD", "LABEL", "EXPOSE"}


def test_the_page_names_every_file_and_each_is_there() -> None:
    named = set(re.findall(r"`((?:examples/cluster|docker)/[\w.]+)`", PAGE))
    assert named == {path.relative_to(ROOT).as_posix() for path in (SLURM, KUBERAY, *IMAGES)}


def test_the_slurm_script_is_bash_and_asks_for_what_it_uses() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    subprocess.run([bash, "-n", str(SLURM)], check=True, timeout=20)
    text = SLURM.read_text()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert asked["ntasks-per-node"] == "1"
    assert asked["signal"].startswith("B:TERM@")
    assert "requeue" in asked
    assert set(re.findall(r"\$\{?(SLURM_\w+)", text)) <= {"SLURM_JOB_NODELIST", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"}
    assert "trap 'kill -TERM $driver' TERM" in text


def test_the_manifest_has_shared_memory_a_shared_disk_and_our_images() -> None:
    job: dict[str, Any] = yaml.safe_load(KUBERAY.read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"]["entrypoint"].startswith("rlinf train ")
    assert job["spec"]["backoffLimit"] > 0
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        name, _, tag = container["image"].partition(":")
        assert name == "rlinf"
        assert ROOT / "docker" / f"{tag}.Dockerfile" in IMAGES
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounted = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
        assert mounted["/dev/shm"]["emptyDir"]["medium"] == "Memory"
        assert "persistentVolumeClaim" in mounted["/data"]
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        assert limits.get("nvidia.com/gpu") == requests.get("nvidia.com/gpu")


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.name)
def test_images_parse_and_end_in_the_command(image: Path) -> None:
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", image.read_text(), flags=re.MULTILINE))
    steps = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    assert {step[0] for step in steps} <= INSTRUCTIONS
    assert steps[0][0] in ("FROM", "ARG")
    assert ["ENTRYPOINT", '["rlinf"]'] in steps
    assert [step for step in steps if step[0] == "USER"] == [["USER", "rlinf"]]
    for step in steps:
        if step[0] == "COPY":
            assert (ROOT / step[1].split()[-2]).exists()


def test_variables_of_nccl_are_written_as_cluster_env_takes_them() -> None:
    given = re.findall(r"`((?:NCCL|GLOO)_\w+)=(\S+?)`", PAGE)
    assert {name for name, _ in given} >= {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG"}
    assert "rlinf doctor --cluster" in PAGE
    assert "ray start --head" in PAGE
