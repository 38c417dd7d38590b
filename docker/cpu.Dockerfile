# rlinf on CPUs: docker build -f docker/cpu.Dockerfile -t rlinf:cpu .
#   docker run --rm --shm-size 2g -v $PWD:/work rlinf:cpu train quickstart
FROM python:3.11-slim

# EGL for simulators that draw without a display.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libgl1 libglib2.0-0 git \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
ARG EXTRAS=math,sweep,video
# The CPU build of torch is a tenth of the size of the one that comes by default.
RUN pip install --no-cache-dir uv==0.13.9 \
    && uv pip install --system --no-cache --torch-backend=cpu -c /src/requirements/lock.txt "/src[${EXTRAS}]"

# Nothing needs root; Ray and the caches write below the home directory.
RUN useradd --create-home rlinf && mkdir /work && chown rlinf /work
USER rlinf
WORKDIR /work
ENTRYPOINT ["rlinf"]
CMD ["--help"]
