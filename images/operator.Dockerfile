# The operator. Context: the repository root, with its wheel in dist/ (`python -m cluster images build operator`).
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS tools
ARG PIP_INDEX_URL
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install --no-cache-dir uv==0.13.9

FROM ${BASE_IMAGE} AS operator
LABEL dev.rampway.image=operator
ARG UV_DEFAULT_INDEX
ENV PATH=/opt/rampway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN python3 -m venv --without-pip /opt/rampway
COPY requirements/operator.txt /opt/requirements.txt
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=cache,id=rampway-uv,target=/cache/uv \
    UV_CACHE_DIR=/cache/uv UV_LINK_MODE=copy SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    /opt/tools/bin/uv pip install --python /opt/rampway --compile-bytecode -r /opt/requirements.txt
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,source=dist,target=/dist \
    /opt/tools/bin/uv pip install --no-cache --python /opt/rampway --compile-bytecode --no-deps \
    /dist/rampway_operator-*.whl
USER 65532:65532
ENTRYPOINT ["rampway-operator"]
