# rlinf on NVIDIA GPUs: docker build -f docker/cuda.Dockerfile -t rlinf:cuda .
#   docker run --rm --gpus all --ipc host --ulimit memlock=-1 -v $PWD:/work rlinf:cuda train gsm8k.yaml
# The host needs a driver for CUDA 13 (release 580 or later) and the NVIDIA container toolkit.
FROM nvidia/cuda:13.0.2-cudnn-devel-ubuntu24.04

ENV DEBIAN_FRONTEND=noninteractive
# A compiler for pycosat, which reasoning-gym needs and has no wheel, and for the kernels of Triton.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev git libegl1 libgl1 libglib2.0-0 python3.12 python3.12-venv python3.12-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python3.12 -m venv /opt/rlinf
ENV PATH=/opt/rlinf/bin:$PATH
COPY . /src
# vLLM names the build of torch that it was compiled against. TORCH: see cpu.Dockerfile.
ARG TORCH=--torch-backend=cu130
ARG EXTRAS=math,vllm,sweep,cluster
RUN pip install --no-cache-dir uv==0.13.9 \
    && uv pip install --no-cache ${TORCH} -c /src/requirements/lock-hashes.txt "/src[${EXTRAS}]"
# KubeRay starts pods in a login shell, whose PATH is the system's own.
RUN ln -s /opt/rlinf/bin/ray /opt/rlinf/bin/rlinf /usr/local/bin/

RUN useradd --create-home rlinf && mkdir -p /work && chown rlinf /work
USER rlinf
WORKDIR /work
ENTRYPOINT ["rlinf"]
CMD ["--help"]
