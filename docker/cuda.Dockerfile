# rlinf on NVIDIA GPUs: docker build -f docker/cuda.Dockerfile -t rlinf:cuda .
#   docker run --rm --gpus all --ipc host --ulimit memlock=-1 -v $PWD:/work rlinf:cuda train gsm8k.yaml
# The host needs a driver for CUDA 12.8 or later and the NVIDIA container toolkit.
FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04

ENV DEBIAN_FRONTEND=noninteractive
# A compiler for pycosat, which reasoning-gym needs and has no wheel, and for the kernels of Triton.
RUN apt-get update \
    && apt-get install -y --no-install-recommends software-properties-common gcc libc6-dev git libegl1 libgl1 libglib2.0-0 \
    && add-apt-repository -y ppa:deadsnakes/ppa \
    && apt-get install -y --no-install-recommends python3.11 python3.11-venv python3.11-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python3.11 -m venv /opt/rlinf
ENV PATH=/opt/rlinf/bin:$PATH
COPY . /src
# vLLM names the build of torch that it was compiled against. TORCH: see cpu.Dockerfile.
ARG TORCH=--torch-backend=cu128
ARG EXTRAS=math,vllm,sweep
RUN pip install --no-cache-dir uv==0.13.9 \
    && uv pip install --no-cache ${TORCH} "/src[${EXTRAS}]"
# KubeRay starts pods in a login shell, whose PATH is the system's own.
RUN ln -s /opt/rlinf/bin/ray /opt/rlinf/bin/rlinf /usr/local/bin/

RUN useradd --create-home rlinf && mkdir -p /work && chown rlinf /work
USER rlinf
WORKDIR /work
ENTRYPOINT ["rlinf"]
CMD ["--help"]
