# rlinf on CPUs: docker build -f docker/cpu.Dockerfile -t rlinf:cpu .
#   docker run --rm --shm-size 2g -v $PWD:/work rlinf:cpu train quickstart
FROM python:3.12-slim

# EGL for simulators that draw without a display; a compiler for pycosat, which reasoning-gym needs and has no wheel.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libegl1 libgl1 libglib2.0-0 git \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
ARG EXTRAS=math,sweep,video,cluster
# The CPU build of torch is a tenth of the size of the one that comes by default. Where only a mirror of PyPI can be
# reached: --build-arg TORCH= , or TORCH=--find-links=FOLDER with its wheels.
ARG TORCH=--torch-backend=cpu
# Every other file is verified by its hash.
RUN pip install --no-cache-dir uv==0.13.9 \
    && uv pip install --system --no-cache ${TORCH} -c /src/requirements/lock-hashes.txt torch==2.13.0 "/src[${EXTRAS}]"

# Nothing needs root; Ray and the caches write below the home directory.
RUN useradd --create-home rlinf && mkdir /work && chown rlinf /work
USER rlinf
WORKDIR /work
ENTRYPOINT ["rlinf"]
CMD ["--help"]
