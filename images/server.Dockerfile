# The serving image. Context: the repository root, with its wheels in dist/
# (`python -m cluster images build simulated full` makes both).
# Targets: `simulated` without torch, `full` with torch and Triton for GPU and CPU.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS simulated
LABEL dev.rampway.image=server-simulated
ENV PATH=/opt/rampway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
COPY requirements/server.txt /opt/requirements.txt
RUN --mount=type=bind,source=images,target=/build \
    --mount=type=cache,id=rampway-tools,target=/cache/tools \
    --mount=type=cache,id=rampway-uv,target=/cache/uv \
    sh /build/install.sh -r /opt/requirements.txt
# Our own code last: a new build of it reuses every layer above.
COPY dist/rampway_server-*.whl dist/rampway_prefix_cache-*.whl /opt/wheels/
RUN --mount=type=bind,source=images,target=/build \
    --mount=type=cache,id=rampway-tools,target=/cache/tools \
    sh /build/install.sh --no-cache --no-deps /opt/wheels/*.whl
USER 65532:65532
# `engine.args` of an InferenceDeployment are flags of `serve`, as vLLM and SGLang users write them.
ENTRYPOINT ["rampway-server", "serve"]

FROM ${BASE_IMAGE} AS full
LABEL dev.rampway.image=server-full
ENV PATH=/opt/rampway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
# Triton compiles a C module against Python.h when it first meets a GPU: a compiler is not optional.
RUN apt-get update -q \
    && apt-get install -y -q --no-install-recommends gcc libc6-dev libpython3-dev libstdc++6 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY requirements/server-torch.txt /opt/requirements.txt
RUN --mount=type=bind,source=images,target=/build \
    --mount=type=cache,id=rampway-tools,target=/cache/tools \
    --mount=type=cache,id=rampway-uv,target=/cache/uv \
    sh /build/install.sh -r /opt/requirements.txt
# The kernels of the served models, compiled for every GPU architecture: the first request compiles
# none. From the sources, before our wheels: a new build of anything else reuses this layer.
COPY server/src/rampway_server/__init__.py server/src/rampway_server/errors.py /opt/kernels/rampway_server/
COPY server/src/rampway_server/kernels /opt/kernels/rampway_server/kernels
# The root of a pod is read only: what is not there is compiled into a folder of /tmp.
ENV RAMPWAY_COMPILED_KERNELS=/opt/rampway/triton TRITON_CACHE_DIR=/tmp/triton
RUN cd /opt/kernels && TRITON_STORE_BINARY_ONLY=1 /opt/rampway/bin/python -m rampway_server.kernels.usage_record \
        fill --cache "$RAMPWAY_COMPILED_KERNELS" \
    && rm -r /opt/kernels
COPY dist/rampway_server-*.whl dist/rampway_prefix_cache-*.whl /opt/wheels/
RUN --mount=type=bind,source=images,target=/build \
    --mount=type=cache,id=rampway-tools,target=/cache/tools \
    sh /build/install.sh --no-cache --no-deps /opt/wheels/*.whl
USER 65532:65532
# `engine.args` of an InferenceDeployment are flags of `serve`, as vLLM and SGLang users write them.
ENTRYPOINT ["rampway-server", "serve"]
