# The operator. Context: the repository root, with its wheel in dist/
# (`python -m cluster images build operator` makes both).
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}
LABEL dev.rampway.image=operator
ENV PATH=/opt/rampway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
COPY requirements/operator.txt /opt/requirements.txt
RUN --mount=type=bind,source=images,target=/build \
    --mount=type=cache,id=rampway-tools,target=/cache/tools \
    --mount=type=cache,id=rampway-uv,target=/cache/uv \
    sh /build/install.sh -r /opt/requirements.txt
# Our own code last: a new build of it reuses every layer above.
COPY dist/rampway_operator-*.whl /opt/wheels/
RUN --mount=type=bind,source=images,target=/build \
    --mount=type=cache,id=rampway-tools,target=/cache/tools \
    sh /build/install.sh --no-cache --no-deps /opt/wheels/*.whl
USER 65532:65532
ENTRYPOINT ["rampway-operator"]
